//! Reasons why an annotation cannot be honored.

use std::{io, path::PathBuf};

use snafu::Snafu;

use super::annotation::ObjectName;
use crate::{bundle::BundleError, target::TargetError};

#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
pub(super) enum Problem {
    #[snafu(display("annotation {annotation} is {value:?}; accepted is NAMESPACE/NAME"))]
    Malformed { annotation: &'static str, value: String },
    #[snafu(display("namespace {namespace} is none of those that CAs are taken from: {accepted}"))]
    Namespace { namespace: String, accepted: String },
    #[snafu(display("Secret {secret} does not exist"))]
    NoSecret { secret: ObjectName },
    #[snafu(display("Certificate {certificate} does not exist"))]
    NoCertificate { certificate: ObjectName },
    #[snafu(display("Certificate {certificate} names no Secret in spec.secretName"))]
    NoSecretName { certificate: ObjectName },
    #[snafu(display(
        "this cluster has no kind Certificate, and no Secret in namespace {} has the annotation \
         cert-manager.io/certificate-name: {}",
        certificate.namespace, certificate.name
    ))]
    NoSecretOf { certificate: ObjectName },
    #[snafu(display(
        "this cluster has no kind Certificate, and several Secrets in namespace {} have the annotation \
         cert-manager.io/certificate-name: {}; exactly one is expected",
        certificate.namespace, certificate.name
    ))]
    SeveralSecretsOf { certificate: ObjectName },
    // The next two do not disclose whether a Secret exists, because annotating an object requires no
    // permission to read it.
    #[snafu(display(
        "Secret {secret} of Certificate {certificate} does not exist, or lacks the annotation \
         cert-manager.io/certificate-name: {}",
        certificate.name
    ))]
    NotOwned { secret: ObjectName, certificate: ObjectName },
    #[snafu(display(
        "Secret {secret} does not exist, or lacks the annotation cert-manager.io/allow-direct-injection: \"true\""
    ))]
    NotAllowed { secret: ObjectName },
    #[snafu(display("Secret {secret} has no key {key}"))]
    NoKey { secret: ObjectName, key: String },
    #[snafu(display("key {key} of Secret {secret} is not a trust bundle"))]
    Unusable { secret: ObjectName, key: String, source: BundleError },
    #[snafu(display("{origin} holds only expired certificates"))]
    Expired { origin: String },
    #[snafu(display("the API server is not verified by a CA of its own: there is none to inject"))]
    NoApiServerCa,
    #[snafu(display("no Secret is chosen for what OpenShift's service CA would inject"))]
    NoServiceCa,
    #[snafu(display("failed to read the CA of the API server from {}", path.display()))]
    ApiServerCaFile { path: PathBuf, source: io::Error },
    #[snafu(display("the CA of the API server is not a trust bundle"))]
    UnusableApiServerCa { source: BundleError },
    #[snafu(transparent)]
    Target { source: TargetError },
    #[snafu(display("failed to {action} {object}"))]
    Api {
        action: &'static str,
        object: String,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    #[snafu(display("the API server did not answer within {seconds} s"))]
    TimedOut { seconds: u64 },
}

impl Problem {
    /// Returns `true` if a retry may succeed although no dependency changes.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Api { .. } | Self::TimedOut { .. } | Self::ApiServerCaFile { .. } => true,
            Self::Target { source } => !matches!(source, TargetError::Unfit { .. }),
            _ => false,
        }
    }

    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "MalformedAnnotation",
            Self::Namespace { .. } | Self::NotAllowed { .. } | Self::NotOwned { .. } => "CANotAllowed",
            Self::NoSecret { .. }
            | Self::NoCertificate { .. }
            | Self::NoSecretName { .. }
            | Self::NoSecretOf { .. }
            | Self::SeveralSecretsOf { .. }
            | Self::NoServiceCa
            | Self::NoApiServerCa => "CANotFound",
            Self::NoKey { .. }
            | Self::Unusable { .. }
            | Self::Expired { .. }
            | Self::ApiServerCaFile { .. }
            | Self::UnusableApiServerCa { .. } => "CANotUsable",
            Self::Target { .. } | Self::Api { .. } | Self::TimedOut { .. } => "CANotInjected",
        }
    }

    /// Returns `true` if the problem should be reported by an event: users of the object can act on it, such
    /// as when the API server rejects a request, but not while it is unreachable.
    pub(super) fn is_actionable(&self) -> bool {
        match self {
            Self::Api { source, .. } => is_client_error(source),
            Self::Target { source: TargetError::Api { source, .. } } => {
                source.downcast_ref().is_some_and(is_client_error)
            }
            Self::TimedOut { .. } => false,
            _ => true,
        }
    }
}

fn is_client_error(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}
