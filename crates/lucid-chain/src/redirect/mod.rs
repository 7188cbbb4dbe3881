//! Network rules that send a pod's traffic through its chain.
//!
//! A [`Redirect`] is passed as JSON in the environment variable [`REDIRECT_ENV`](crate::keys::REDIRECT_ENV) to the
//! init container [`lucid-init`](crate::keys::INIT_CONTAINER), which installs the rules with `nft` or
//! `iptables-restore` and checks that they work.
//!
//! ```
//! use std::num::NonZeroU16;
//! use lucid_chain::redirect::{Hop, Redirect};
//!
//! let plan = r#"{"version":1,"chain":[{"uid":20001,"port":8090},{"uid":20002,"port":8093}],"model":5000,"inbound":true,"outbound":[]}"#;
//! let redirect = Redirect::from_json(plan)?;
//! assert_eq!(redirect.first_port().get(), 8090);
//! assert_eq!(redirect.to_json(), plan);
//! assert!(redirect.nft_script().contains("tcp dport { 5000, 8093 } redirect to :8090"));
//!
//! // Built from its parts.
//! let port = |number| NonZeroU16::new(number).ok_or("port 0");
//! let chain = [Hop::new(20001, port(8090)?), Hop::new(20002, port(8093)?)];
//! assert_eq!(Redirect::new(chain, port(5000)?, true, [])?, redirect);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rules
//!
//! The *guarded* ports are the model's port and the ports of all auditors except the first.
//!
//! - A call from outside the pod to a guarded port is redirected to the first auditor. For the model's port, this
//!   applies only if the chain audits inbound traffic.
//! - A call from inside the pod to a guarded port of the pod is redirected to the first auditor, for any address and
//!   any process. Each auditor's uid is exempt for its next hop and its own port, so the kernel enforces the order of
//!   the chain.
//! - With an *exit*, the first member of the chain is `lucid-egress`, which also ends it: the exit is guarded, the last
//!   auditor forwards to it instead of the model, and the uid of `lucid-egress` is exempt for the model.
//! - A call to an outbound port of another host is redirected to the first auditor, unless an auditor's uid makes it.
//!   Other calls that leave the pod are not affected.
//!
//! - A connection that predates the rules is reset, whichever side sends the next packet.
//!
//! The rules cover TCP only. [`Redirect::nft_script`] handles IPv4 and IPv6 together; [`Redirect::iptables_restore`]
//! is the input for both `iptables-restore` and `ip6tables-restore`.

mod iptables;
mod json;
mod nft;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU16,
};

use snafu::{Snafu, ensure};

use crate::chain::MAX_CHAIN;

pub use iptables::{IPTABLES_CHAIN, IPTABLES_FLAGS};
pub use nft::NFT_TABLE;

/// Largest uid that the API accepts in `runAsUser`.
const MAX_UID: u32 = i32::MAX.cast_unsigned();

/// Uid and port of one auditor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hop {
    /// The uid that only this auditor runs as.
    pub uid: u32,
    /// The TCP port that it listens on.
    pub port: NonZeroU16,
}

impl Hop {
    /// Creates a hop for the auditor that runs as `uid` and listens on `port`.
    pub fn new(uid: u32, port: NonZeroU16) -> Self {
        Self { uid, port }
    }
}

/// Parameters of the rules that [`lucid-init`](crate::keys::INIT_CONTAINER) installs: the chain, the model and the
/// audited traffic.
///
/// Holds between 1 and [`MAX_CHAIN`] auditors. No uid is root's, and uids and ports are unique.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    first: Hop,
    later: Vec<Hop>,
    model: NonZeroU16,
    inbound: bool,
    outbound: BTreeSet<NonZeroU16>,
    exit: Option<NonZeroU16>,
}

impl Redirect {
    /// Creates a redirect to `chain`, in order, in front of the model on port `model`.
    ///
    /// With `inbound`, calls from outside the pod to the model pass through the chain. `outbound` lists the ports of
    /// other hosts that calls from the pod reach only through the chain.
    ///
    /// # Errors
    ///
    /// Returns [`RedirectError`] if the chain is empty or too long, a uid is 0 or out of range, or a uid or port
    /// occurs twice.
    pub fn new(
        chain: impl IntoIterator<Item = Hop>,
        model: NonZeroU16,
        inbound: bool,
        outbound: impl IntoIterator<Item = NonZeroU16>,
    ) -> Result<Self, RedirectError> {
        let mut uids = BTreeSet::new();
        let mut ports = BTreeMap::from([(model, "the model".to_owned())]);
        let mut hops = Vec::new();
        for Hop { uid, port } in chain {
            // The intake of outbound traffic is a hop besides the auditors.
            ensure!(
                hops.len() <= MAX_CHAIN,
                RedirectSnafu { problem: format!("chain is too long, accepted 1 to {MAX_CHAIN} auditors") }
            );
            let position = hops.len() + 1;
            ensure!(
                (1..=MAX_UID).contains(&uid),
                RedirectSnafu {
                    problem: format!("uid of auditor {position} is {uid}, accepted 1 to {MAX_UID}")
                }
            );
            ensure!(
                uids.insert(uid),
                RedirectSnafu {
                    problem: format!(
                        "uid {uid} of auditor {position} is an earlier auditor's too, accepted one uid for each"
                    )
                }
            );
            if let Some(holder) = ports.insert(port, format!("auditor {position}")) {
                let problem = format!(
                    "port {port} of auditor {position} is the one of {holder} too, accepted one port for each"
                );
                return RedirectSnafu { problem }.fail();
            }
            hops.push(Hop { uid, port });
        }
        ensure!(
            !hops.is_empty(),
            RedirectSnafu { problem: format!("chain is empty, accepted 1 to {MAX_CHAIN} auditors") }
        );

        let mut outbound_ports = BTreeSet::new();
        for port in outbound {
            ensure!(
                outbound_ports.insert(port),
                RedirectSnafu { problem: format!("outbound port {port} comes twice, accepted each once") }
            );
        }
        let first = hops.remove(0);
        Ok(Self { first, later: hops, model, inbound, outbound: outbound_ports, exit: None })
    }

    /// Makes the first member of the chain its last hop as well, as [`lucid-egress`](crate::keys::EGRESS_CONTAINER)
    /// is: the last auditor forwards to its port `exit`, and only it may connect to the model.
    ///
    /// # Errors
    ///
    /// Returns [`RedirectError`] if `exit` is the port of an auditor or the model.
    pub fn with_exit(mut self, exit: NonZeroU16) -> Result<Self, RedirectError> {
        let is_taken = self.model == exit || self.chain().any(|hop| hop.port == exit);
        ensure!(
            !is_taken,
            RedirectSnafu {
                problem: format!("exit {exit} is taken in the chain, accepted a port of its own")
            }
        );
        self.exit = Some(exit);
        Ok(self)
    }

    /// Returns the auditors, in order; at least one.
    pub fn chain(&self) -> impl Iterator<Item = Hop> + '_ {
        std::iter::once(self.first).chain(self.later.iter().copied())
    }

    /// Returns the port of the first auditor, the target of all redirected calls.
    pub fn first_port(&self) -> NonZeroU16 {
        self.first.port
    }

    /// Returns the port of the model.
    pub fn model(&self) -> NonZeroU16 {
        self.model
    }

    /// Returns the ports of other hosts that calls from the pod reach only through the chain, in ascending order.
    pub fn outbound(&self) -> impl Iterator<Item = NonZeroU16> + '_ {
        self.outbound.iter().copied()
    }

    /// Returns the ports of the pod that calls from inside reach only through the chain: the model's and those of all
    /// auditors except the first.
    pub fn guarded(&self) -> BTreeSet<NonZeroU16> {
        self.later.iter().map(|hop| hop.port).chain([self.model]).chain(self.exit).collect()
    }

    /// Returns the ports of the pod that calls from outside reach only through the chain: those of
    /// [`Redirect::guarded`], without the model's if inbound traffic is not
    /// audited.
    fn guarded_from_outside(&self) -> BTreeSet<NonZeroU16> {
        let mut ports = self.guarded();
        if !self.inbound {
            ports.remove(&self.model);
        }
        ports
    }

    /// Returns the guarded ports that each auditor's uid may connect to: its own port and its next hop. The first
    /// auditor's port is not guarded.
    fn exceptions(&self) -> impl Iterator<Item = (u32, BTreeSet<NonZeroU16>)> + '_ {
        let end = self.exit.unwrap_or(self.model);
        let next_ports = self.later.iter().map(|hop| hop.port).chain([end]);
        self.chain().zip(next_ports).map(move |(hop, next_port)| {
            let mut ports = BTreeSet::from([hop.port, next_port]);
            ports.remove(&self.first.port);
            if hop == self.first && self.exit.is_some() {
                ports.insert(self.model);
            }
            (hop.uid, ports)
        })
    }
}

/// A redirect is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
#[snafu(display("failed to read the redirect: {problem}"))]
pub struct RedirectError {
    problem: String,
}
