//! Serving over TLS with a certificate that can be swapped, and knowing clients by theirs

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
