//! Options of the serving certificate.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use lucid_certs::{Timing, TlsVersion};

use crate::serving::Program;

/// Issuer of the serving certificate, and publisher of the trust in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Source {
    /// Issued by Lucid with a certificate authority that replicas share in a Secret; Lucid publishes the trust bundle
    SelfSigned,
    /// Issued by cert-manager, in a Secret; its cainjector publishes the trust bundle
    CertManager,
    /// Issued by OpenShift's service CA, in a Secret; OpenShift publishes the trust bundle
    Openshift,
    /// Issued by the Operator Lifecycle Manager, in files; it registers the webhooks of the ClusterServiceVersion and
    /// publishes the trust bundle
    Olm,
    /// Managed externally, in a Secret with tls.crt, tls.key and ca.crt; Lucid publishes the trust bundle
    Secret,
    /// Managed externally, in files tls.crt, tls.key and ca.crt; Lucid publishes the trust bundle
    Files,
}

/// Options of the serving certificate.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Certificates")]
pub struct CertificateArgs {
    /// Issuer of the serving certificate.
    #[arg(long, env = "LUCID_CERTIFICATES", value_name = "SOURCE", default_value = "self-signed")]
    pub certificates: Source,

    /// Secret in Lucid's namespace with the certificate authority, for self-signed. By default the program's name
    /// followed by -ca, such as lucid-operator-ca.
    #[arg(long, value_name = "NAME", value_parser = crate::parse_object_name)]
    pub ca_secret: Option<String>,

    /// Secret in Lucid's namespace with the serving certificate, for self-signed, cert-manager, openshift and secret.
    /// By default the program's name followed by -tls, such as lucid-operator-tls.
    #[arg(long, env = "LUCID_TLS_SECRET", value_name = "NAME", value_parser = crate::parse_object_name)]
    pub tls_secret: Option<String>,

    /// Directory with tls.crt, tls.key and ca.crt, for files. For cert-manager and openshift: the directory where their
    /// Secret is mounted, read instead of the API server. For olm: a directory with tls.crt and tls.key, instead of
    /// apiserver.crt and apiserver.key in /apiserver.local.config/certificates.
    #[arg(long, env = "LUCID_TLS_DIRECTORY", value_name = "DIRECTORY")]
    pub tls_directory: Option<PathBuf>,

    /// Publish the trust bundle in the webhook registration: ca.crt, or without it the last certificate in tls.crt. By
    /// default true for self-signed, secret and files, and false for the others.
    #[arg(long, value_name = "BOOL")]
    pub publish_trust: Option<bool>,

    /// Annotation of the registration, without cert-manager.io/, by which cert-manager's cainjector or Lucid's writes the
    /// trust bundle: inject-ca-from=NAMESPACE/CERTIFICATE, inject-ca-from-secret=NAMESPACE/SECRET or
    /// inject-apiserver-ca=true. For cert-manager, secret and files. By default none.
    #[arg(long, value_name = "ANNOTATION", value_parser = parse_injection)]
    pub inject_ca: Option<(String, String)>,

    /// Lifetime of serving certificates issued by Lucid. They are renewed after two thirds of it. The certificate
    /// authority lives for 365 days and is renewed 30 days before it expires, or four and two of these lifetimes if that
    /// is longer.
    #[arg(long, env = "LUCID_CERTIFICATE_LIFETIME", value_name = "DURATION", default_value = "168h")]
    #[arg(value_parser = parse_duration)]
    pub certificate_lifetime: Duration,

    /// Time for API servers to receive a new certificate authority before certificates issued by it are served.
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    #[arg(value_parser = parse_duration)]
    pub trust_settle: Duration,

    /// Issue a certificate for each replica and keep its key in memory, instead of one for all replicas in --tls-secret.
    /// For self-signed.
    #[arg(long, value_name = "BOOL", default_value = "false")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub certificate_per_replica: bool,

    /// Minimum TLS version: 1.2 or 1.3.
    #[arg(long, value_name = "VERSION", default_value = "1.2")]
    pub tls_min_version: TlsVersion,

    /// Require client certificates of the authorities in this file for webhook calls. The file is reloaded when it
    /// changes. By default no client certificate is required. /healthz and /audit never require one.
    #[arg(long, env = "LUCID_CLIENT_CA", value_name = "FILE")]
    pub client_ca: Option<PathBuf>,

    /// Names of accepted client certificates. By default any name is accepted.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "client_ca")]
    pub client_names: Vec<String>,
}

impl CertificateArgs {
    /// Rejects options that the source of the certificate would ignore.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (found, reason) = match (self.certificates, &self.tls_directory, self.publish_trust) {
            (Source::Files, None, _) => {
                let needed = "LUCID_TLS_DIRECTORY, the directory with tls.crt, tls.key and ca.crt";
                return Err(format!("LUCID_CERTIFICATES=files needs {needed}"));
            }
            (Source::SelfSigned, Some(_), _) => ("LUCID_TLS_DIRECTORY", "it is read for all other sources"),
            (Source::SelfSigned, _, Some(false)) => {
                ("--publish-trust=false", "only Lucid can publish the trust in its own authority")
            }
            (Source::SelfSigned | Source::Openshift | Source::Olm, ..) if self.inject_ca.is_some() => {
                ("--inject-ca", "it is for cert-manager, secret and files")
            }
            (_, _, Some(true)) if self.inject_ca.is_some() => {
                ("--publish-trust=true and --inject-ca", "only one of them can write the caBundle")
            }
            (Source::Openshift | Source::Olm, _, Some(true)) => {
                ("--publish-trust=true", "it needs authorities, which this source does not provide")
            }
            _ => return Ok(()),
        };
        let source = self.certificates.to_possible_value();
        let source = source.as_ref().map_or("", |value| value.get_name());
        Err(format!("{found} cannot be used with LUCID_CERTIFICATES={source}: {reason}"))
    }

    /// Returns the name of the Secret with the certificate authority.
    #[must_use]
    pub fn authority_secret(&self, program: Program) -> String {
        self.ca_secret.clone().unwrap_or_else(|| format!("{}-ca", program.name))
    }

    /// Returns the name of the Secret with the serving certificate.
    #[must_use]
    pub fn certificate_secret(&self, program: Program) -> String {
        self.tls_secret.clone().unwrap_or_else(|| format!("{}-tls", program.name))
    }

    pub(crate) fn publishes_trust(&self) -> bool {
        let usual = matches!(self.certificates, Source::SelfSigned | Source::Secret | Source::Files);
        self.certificates == Source::SelfSigned
            || self.publish_trust.unwrap_or(usual && self.inject_ca.is_none())
    }

    /// Returns `true` if this process registers the webhooks. OLM registers those of the ClusterServiceVersion itself,
    /// under generated names, and injects its bundle only there.
    pub(crate) fn registers(&self) -> bool {
        self.certificates != Source::Olm
    }

    /// Annotation by which a third party injects the bundle into the registration.
    pub(crate) fn annotation(&self, program: Program, namespace: &str) -> Option<(String, String)> {
        match self.certificates {
            _ if self.publishes_trust() => None,
            Source::CertManager | Source::Secret | Source::Files if self.inject_ca.is_some() => {
                self.inject_ca.clone()
            }
            Source::CertManager => Some((
                "cert-manager.io/inject-ca-from".to_owned(),
                format!("{namespace}/{}-cert", program.name),
            )),
            Source::Openshift => {
                Some(("service.beta.openshift.io/inject-cabundle".to_owned(), "true".to_owned()))
            }
            Source::SelfSigned | Source::Olm | Source::Secret | Source::Files => None,
        }
    }

    pub(crate) fn timing(&self) -> Timing {
        Timing::default().with_leaf_lifetime(self.certificate_lifetime).with_settle(self.trust_settle)
    }
}

/// Parses an annotation of cert-manager for CA injection; returns its key and value.
fn parse_injection(text: &str) -> Result<(String, String), &'static str> {
    const EXPECTED: &str = "expected inject-ca-from=NAMESPACE/CERTIFICATE, \
                            inject-ca-from-secret=NAMESPACE/SECRET or inject-apiserver-ca=true";
    let (annotation, value) = text.split_once('=').ok_or(EXPECTED)?;
    let is_valid = match annotation {
        "inject-ca-from" | "inject-ca-from-secret" => {
            value.split_once('/').is_some_and(|(namespace, name)| {
                crate::parse_namespace(namespace).is_ok() && crate::parse_object_name(name).is_ok()
            })
        }
        "inject-apiserver-ca" => value == "true",
        _ => false,
    };
    is_valid.then(|| (format!("cert-manager.io/{annotation}"), value.to_owned())).ok_or(EXPECTED)
}

/// Parses a duration in the syntax of Go and Kubernetes.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "expected a duration such as 720h, 90m or 60s, of 1 second to 100 years";
    let duration: jiff::SignedDuration = text.parse().map_err(|_| EXPECTED)?;
    let range = Duration::from_secs(1)..=Duration::from_hours(100 * 365 * 24);
    Duration::try_from(duration).ok().filter(|duration| range.contains(duration)).ok_or(EXPECTED)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        certificates: CertificateArgs,
    }

    #[test]
    fn options_that_the_source_ignores_are_rejected() {
        for (arguments, expected) in [
            (&["--certificates=self-signed"][..], None),
            (
                &["--tls-directory=/tls"],
                Some("LUCID_TLS_DIRECTORY cannot be used with LUCID_CERTIFICATES=self-signed"),
            ),
            (
                &["--publish-trust=false"],
                Some("--publish-trust=false cannot be used with LUCID_CERTIFICATES=self-signed"),
            ),
            (
                &["--certificates=olm", "--publish-trust=true"],
                Some("LUCID_CERTIFICATES=olm: it needs authorities"),
            ),
            (&["--certificates=openshift", "--publish-trust=true"], Some("LUCID_CERTIFICATES=openshift")),
            (&["--certificates=cert-manager", "--publish-trust=true", "--tls-directory=/tls"], None),
            (&["--certificates=files"], Some("needs LUCID_TLS_DIRECTORY")),
            (&["--inject-ca=inject-apiserver-ca=true"], Some("it is for cert-manager, secret and files")),
            (
                &["--certificates=secret", "--publish-trust=true", "--inject-ca=inject-apiserver-ca=true"],
                Some("only one of them can write the caBundle"),
            ),
            (&["--certificates=secret", "--inject-ca=inject-ca-from-secret=lucid-system/ca"], None),
            (&["--certificates=files", "--tls-directory=/tls", "--publish-trust=false"], None),
        ] {
            let args = Args::try_parse_from([&["test"], arguments].concat()).unwrap();
            let error = args.certificates.check().err();
            match expected {
                None => assert_eq!(error, None, "{arguments:?}"),
                Some(text) => assert!(error.as_ref().unwrap().contains(text), "{arguments:?}: {error:?}"),
            }
        }
    }

    #[test]
    fn injection_is_an_annotation_of_cert_manager() {
        for (text, value) in [
            ("inject-ca-from=lucid-system/lucid-operator-cert", "lucid-system/lucid-operator-cert"),
            ("inject-ca-from-secret=pki/ca.v1", "pki/ca.v1"),
            ("inject-apiserver-ca=true", "true"),
        ] {
            let key = format!("cert-manager.io/{}", text.split_once('=').unwrap().0);
            assert_eq!(parse_injection(text), Ok((key, value.to_owned())));
        }
        for text in ["", "inject-ca-from", "inject-ca-from=ca", "inject-apiserver-ca=false", "other=a/b"] {
            assert!(parse_injection(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_lifetime_of_a_year_is_accepted_alone() {
        let args = Args::try_parse_from(["test", "--certificate-lifetime=8760h"]).unwrap();
        let timing = args.certificates.timing();
        timing.check(|_| None).unwrap();
        let year = Duration::from_hours(8760);
        let expected = Timing::default().with_leaf_lifetime(year);
        assert_eq!(timing, expected.with_ca(4 * year, 2 * year).with_drain(year + year / 2));
    }

    #[test]
    fn authorities_live_a_year_and_are_renewed_a_month_before() {
        let timing = Args::try_parse_from(["test"]).unwrap().certificates.timing();
        let day = Duration::from_hours(24);
        let expected = Timing::default().with_leaf_lifetime(7 * day).with_ca(365 * day, 30 * day);
        assert_eq!(timing, expected.with_check_interval(Duration::from_mins(1)));
    }

    #[test]
    fn durations_are_written_as_in_kubernetes() {
        for (text, seconds) in [("720h", 720 * 3_600), ("90m", 5_400), ("1h30m", 5_400), ("60s", 60)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "0s", "-1h", "12", "1 fortnight", "1y", "1ms", "876001h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
