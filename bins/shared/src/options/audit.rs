//! Options of `/audit`.

use std::path::PathBuf;
use std::sync::Arc;

use lucid_admission::Audit;
use lucid_audit::Recorder;
use lucid_webhook::TokenFile;
use snafu::ResultExt;

use super::ArgsError;
use super::error::TokenSnafu;

/// Access to the decisions in memory, to be flattened into a program's arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Decision log")]
pub struct AuditEndpointArgs {
    /// Serve the latest decisions at /audit and, as a web page, at /audit/ui to clients that send the token in this
    /// file as `Authorization: Bearer TOKEN`. The file is read again at each request. By default nothing is served.
    #[arg(long, env = "LUCID_AUDIT_TOKEN_FILE", value_name = "FILE")]
    pub audit_token_file: Option<PathBuf>,

    /// Accept drift reports at /audit/alerts from clients that send the token in this file, which grants no access to
    /// decisions. The file is read again at each request. By default no reports are accepted.
    #[arg(long, value_name = "FILE")]
    pub audit_alert_token_file: Option<PathBuf>,
}

const TOKEN: &str = "LUCID_AUDIT_TOKEN_FILE";
const ALERT_TOKEN: &str = "--audit-alert-token-file";

impl AuditEndpointArgs {
    /// Returns a service for the decisions in the memory of `recorder`.
    ///
    /// # Errors
    ///
    /// Returns an error if a token file cannot be used.
    pub fn service(&self, recorder: Arc<Recorder>) -> Result<Audit, ArgsError> {
        let open = |variable, file: &Option<PathBuf>| {
            file.as_ref().map(TokenFile::open).transpose().context(TokenSnafu { variable })
        };
        let token = open(TOKEN, &self.audit_token_file)?;
        let alert_token = open(ALERT_TOKEN, &self.audit_alert_token_file)?;
        let service = Audit::new(recorder, token);
        let service = service.with_replica(crate::serving::replica().unwrap_or_default());
        Ok(match alert_token {
            Some(alert_token) => service.with_alert_token(alert_token),
            None => service,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_token_file_is_reported_with_its_variable() {
        let recorder = Arc::new(Recorder::new(1));
        let missing = || Some("/nonexistent/token".into());
        for (audit_token_file, audit_alert_token_file, variable) in
            [(missing(), None, "LUCID_AUDIT_TOKEN_FILE: "), (None, missing(), "--audit-alert-token-file: ")]
        {
            let args = AuditEndpointArgs { audit_token_file, audit_alert_token_file };
            let error = args.service(Arc::clone(&recorder)).unwrap_err().to_string();
            assert!(error.starts_with(variable) && error.contains("/nonexistent/token"), "{error}");
        }
    }
}
