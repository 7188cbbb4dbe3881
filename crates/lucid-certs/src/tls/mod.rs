//! TLS configuration with swappable certificates and client authentication.

mod clients;
mod resolver;
mod server;

pub use self::{
    clients::ClientCertificates,
    resolver::ServingCertificateResolver,
    server::{ServerTls, TlsVersion},
};
