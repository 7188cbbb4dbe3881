//! Operators that register their own webhooks. [`Operator`] runs a whole program; [`Registration`] is the part that
//! keeps the registration.
//!
//! # Without `Operator`
//!
//! Programs that connect the parts themselves keep this order:
//!
//! 1. Create the [`Registration`], and [`Certificates`](lucid_certs::Certificates) with its
//!    [targets](Registration::targets). Neither writes anything yet.
//! 2. Bind [`AdminServer`](crate::AdminServer) and [`Server`](crate::Server). A port that is in use ends the process
//!    before it has registered anything.
//! 3. Spawn `AdminServer::serve` and `Certificates::run`, which obtains the certificate and registers the webhooks.
//! 4. Await `Certificates::first_certificate`, then call `Server::serve`: connections wait, and no handshake fails.
//! 5. Let the [`Readiness`](crate::Readiness) follow `Certificates::ready` and the first `true` of
//!    [`Registration::present`].
//!
//! On SIGTERM, complete the shutdown futures of `Certificates::run` and `Server::serve` together, and stop
//! `AdminServer` after `Server::serve` has returned. The registration stays for the other replicas and the next
//! process.

mod configuration;
mod conversion;
mod object;
mod presence;
mod registration;
mod run;

pub use registration::Registration;
pub use run::Operator;
