//! TLS configuration with swappable certificates and client authentication.

#[cfg(feature = "runtime")]
mod clients;
mod resolver;
mod server;

#[cfg(feature = "runtime")]
pub use self::clients::{ClientCertificates, ClientCertificatesError};
pub use self::{
    resolver::ServingCertificateResolver,
    server::{ServerTls, TlsError, TlsVersion, UnknownTlsVersion},
};
