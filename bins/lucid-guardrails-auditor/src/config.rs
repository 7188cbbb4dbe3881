//! The configuration, and its reloads.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use lucid_auditor::Judges;
use lucid_guardrails::{Config, OptionsError};
use snafu::{ResultExt as _, Snafu};
use tokio::sync::watch;

/// Interval at which files are compared, besides events of the file system.
const POLL: Duration = Duration::from_secs(30);

/// Source of the configuration.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// YAML.
    Text(String),
    File(PathBuf),
}

/// The configuration cannot be applied.
#[derive(Debug, Snafu)]
pub(crate) enum LoadError {
    #[snafu(display("failed to read {}", path.display()))]
    Read { path: PathBuf, source: std::io::Error },
    #[snafu(display("invalid configuration{}", place(path.as_deref())))]
    Invalid { path: Option<PathBuf>, source: OptionsError },
}

fn place(path: Option<&Path>) -> String {
    path.map(|path| format!(" in {}", path.display())).unwrap_or_default()
}

impl Source {
    fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Text(_) => None,
            Self::File(path) => Some(path.clone()),
        }
    }

    fn read(&self) -> Result<String, LoadError> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => fs::read_to_string(path).context(ReadSnafu { path }),
        }
    }

    pub(crate) fn load(&self) -> Result<(Config, Judges), LoadError> {
        let text = self.read()?;
        let invalid = |source| LoadError::Invalid { path: self.path(), source };
        let config = Config::parse(&text).map_err(invalid)?;
        let judges = config.build().map_err(invalid)?;
        Ok((config, judges))
    }

    /// Returns what changes when the configuration or a file that it names does.
    fn state(&self, config: &Config) -> Result<State, LoadError> {
        let files = config.files().into_iter().map(|path| {
            let metadata = fs::metadata(path).ok();
            metadata.map(|metadata| (metadata.len(), metadata.modified().ok()))
        });
        Ok((self.read()?, files.collect()))
    }
}

type State = (String, Vec<Option<(u64, Option<SystemTime>)>>);

/// Follows changes of the files. With an error, the former judges remain.
pub(crate) fn follow(source: Source, config: Config, judges: Judges) -> watch::Receiver<Judges> {
    let (sender, receiver) = watch::channel(judges);
    let mut files = config.files();
    files.extend(source.path());
    if files.is_empty() {
        // The sender may go: the judges remain.
        return receiver;
    }
    // The first comparison may find a change since the configuration was loaded.
    let mut loaded = (config, None);
    tokio::spawn(async move {
        let reload = move || {
            let state = source.state(&loaded.0)?;
            if loaded.1.as_ref() != Some(&state) {
                let (config, judges) = source.load()?;
                tracing::info!(?judges, "configuration loaded");
                loaded = (config, Some(state));
                sender.send_replace(judges);
            }
            Ok::<_, LoadError>(())
        };
        lucid_shared::follow(&files, POLL, "configuration", reload).await;
    });
    receiver
}
