//! The network rules that send a pod's traffic through its chain.
//!
//! A [`Redirect`] travels as JSON in the environment variable [`keys::REDIRECT_ENV`] of the init container
//! [`keys::INIT_CONTAINER`], which gives its text to `nft` or `iptables-restore` and proves that it works.
//!
//! ```
//! use std::num::NonZeroU16;
//! use lucid_chain::redirect::{Hop, Redirect};
//!
//! let plan = r#"{"version":1,"chain":[{"uid":20001,"port":8090},{"uid":20002,"port":8093}],"model":5000,"inbound":true,"outbound":[]}"#;
//! let redirect = Redirect::from_json(plan)?;
//! assert_eq!(redirect.first().get(), 8090);
//! assert_eq!(redirect.to_json(), plan);
//! assert!(redirect.nft_script().contains("tcp dport { 5000, 8093 } redirect to :8090"));
//!
//! // As a planner makes it.
//! let port = |number| NonZeroU16::new(number).ok_or("port 0");
//! let chain = [Hop::new(20001, port(8090)?), Hop::new(20002, port(8093)?)];
//! assert_eq!(Redirect::new(chain, port(5000)?, true, [])?, redirect);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What the rules say
//!
//! *Guarded* are the model's port and the port of every auditor but the first.
//!
//! - A call from outside the pod to a guarded port goes to the first auditor; to the model's port only where the chain
//!   stands in inbound traffic.
//! - A call from inside the pod to a guarded port of the pod goes to the first auditor, whatever address it names and
//!   whoever makes it. Excepted is each auditor's uid for its next hop and for its own port, so that the kernel keeps
//!   the order.
//! - A call that leaves the pod to an outbound port goes to the first auditor, unless an auditor's uid makes it. Any
//!   other call that leaves the pod is left alone.
//!
//! - A connection that is older than the rules is reset, whichever side sends the next packet.
//!
//! TCP only. [`Redirect::nft_script`] holds for IPv4 and IPv6 at once; [`Redirect::iptables_restore`] is for each of
//! `iptables-restore` and `ip6tables-restore`.

mod iptables;
mod json;
mod nft;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU16,
};

use snafu::{Snafu, ensure};

use crate::{chain::MAX_CHAIN, keys};

pub use iptables::{IPTABLES_CHAIN, IPTABLES_FLAGS};
pub use json::VERSION;
pub use nft::NFT_TABLE;

/// The largest uid a pod may run as (`runAsUser` of the API).
const MAX_UID: u32 = i32::MAX.cast_unsigned();

/// One auditor, as the network sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hop {
    /// The uid that the auditor, and nobody else in the pod, runs as.
    pub uid: u32,
    /// The TCP port it listens on.
    pub port: NonZeroU16,
}

impl Hop {
    /// An auditor that runs as `uid` and listens on `port`.
    pub fn new(uid: u32, port: NonZeroU16) -> Self {
        Self { uid, port }
    }
}

/// What [`keys::INIT_CONTAINER`] has to install: a chain, the model behind it, and which traffic goes through.
///
/// It always holds at least one auditor and at most [`MAX_CHAIN`]; no uid is root's, and no uid and no port comes
/// twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    first: Hop,
    later: Vec<Hop>,
    model: NonZeroU16,
    inbound: bool,
    outbound: BTreeSet<NonZeroU16>,
}

impl Redirect {
    /// The redirect to `chain`, in order, with the model on port `model` behind it. `inbound`: whether calls from
    /// outside the pod to the model go through the chain. `outbound`: the ports of other hosts that calls from the pod
    /// reach only through the chain.
    ///
    /// # Errors
    ///
    /// [`RedirectError`] when there is no auditor or too many, when a uid is root's or no uid, or when a uid or a port
    /// comes twice.
    pub fn new(
        chain: impl IntoIterator<Item = Hop>,
        model: NonZeroU16,
        inbound: bool,
        outbound: impl IntoIterator<Item = NonZeroU16>,
    ) -> Result<Self, RedirectError> {
        let mut uids = BTreeSet::new();
        let mut ports = BTreeMap::from([(model, "the model".to_owned())]);
        let mut hops = Vec::new();
        for hop in chain {
            ensure!(hops.len() < MAX_CHAIN, TooLongSnafu);
            let position = hops.len() + 1;
            ensure!((1..=MAX_UID).contains(&hop.uid), UidSnafu { position, uid: hop.uid });
            ensure!(uids.insert(hop.uid), DuplicateUidSnafu { position, uid: hop.uid });
            if let Some(holder) = ports.insert(hop.port, format!("auditor {position}")) {
                return DuplicatePortSnafu { position, port: hop.port, holder }.fail();
            }
            hops.push(hop);
        }
        ensure!(!hops.is_empty(), EmptySnafu);

        let mut outbound_ports = BTreeSet::new();
        for port in outbound {
            ensure!(outbound_ports.insert(port), DuplicateOutboundSnafu { port });
        }
        let first = hops.remove(0);
        Ok(Self { first, later: hops, model, inbound, outbound: outbound_ports })
    }

    /// The auditors, in order; at least one.
    pub fn chain(&self) -> impl Iterator<Item = Hop> + '_ {
        std::iter::once(self.first).chain(self.later.iter().copied())
    }

    /// The port of the first auditor: where everything is redirected to.
    pub fn first(&self) -> NonZeroU16 {
        self.first.port
    }

    /// The port of the model.
    pub fn model(&self) -> NonZeroU16 {
        self.model
    }

    /// Whether calls from outside the pod to the model go through the chain.
    pub fn inbound(&self) -> bool {
        self.inbound
    }

    /// The ports of other hosts that calls from the pod reach only through the chain, ascending.
    pub fn outbound(&self) -> impl Iterator<Item = NonZeroU16> + '_ {
        self.outbound.iter().copied()
    }

    /// The ports of the pod that a call from inside reaches only through the chain, ascending: the model's and those of
    /// all auditors but the first.
    pub fn guarded(&self) -> BTreeSet<NonZeroU16> {
        self.later.iter().map(|hop| hop.port).chain([self.model]).collect()
    }

    /// The ports of the pod that a call from outside reaches only through the chain, ascending: as
    /// [`Redirect::guarded`], without the model's when [`Redirect::inbound`] does not hold.
    pub fn guarded_from_outside(&self) -> BTreeSet<NonZeroU16> {
        let mut ports = self.guarded();
        if !self.inbound {
            ports.remove(&self.model);
        }
        ports
    }

    /// What an auditor may call in the pod besides the first auditor: its own port and its next hop. The first auditor's
    /// own port is open to everybody.
    fn exceptions(&self) -> impl Iterator<Item = (u32, BTreeSet<NonZeroU16>)> + '_ {
        let next_ports = self.later.iter().map(|hop| hop.port).chain([self.model]);
        self.chain().zip(next_ports).map(|(hop, next_port)| {
            let mut ports = BTreeSet::from([hop.port, next_port]);
            ports.remove(&self.first.port);
            (hop.uid, ports)
        })
    }
}

/// A text or its parts are no [`Redirect`].
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
#[non_exhaustive]
pub enum RedirectError {
    /// The text is not JSON of the right shape.
    #[snafu(display("failed to read the redirect: {problem}"))]
    Json {
        /// Where and what.
        problem: String,
    },
    /// The text is of a version this build does not know.
    #[snafu(display(
        "failed to read the redirect: found version {found}, accepted {VERSION}: {} and the operator must be of \
         the same release",
        keys::INIT_CONTAINER
    ))]
    Version {
        /// The version it names.
        found: u64,
    },
    /// The chain has no auditor.
    #[snafu(display("failed to read the redirect: chain is empty, accepted 1 to {MAX_CHAIN} auditors"))]
    Empty,
    /// The chain has more than [`MAX_CHAIN`] auditors.
    #[snafu(display("failed to read the redirect: chain is too long, accepted 1 to {MAX_CHAIN} auditors"))]
    TooLong,
    /// A uid is root's or none at all.
    #[snafu(display(
        "failed to read the redirect: uid of auditor {position} is {uid}, accepted 1 to {MAX_UID}"
    ))]
    Uid {
        /// The auditor's place in the chain, counted from 1.
        position: usize,
        /// What was found.
        uid: u32,
    },
    /// Two auditors have one uid, so that the kernel could not tell them apart.
    #[snafu(display(
        "failed to read the redirect: uid {uid} of auditor {position} is an earlier auditor's too, accepted one \
         uid for each"
    ))]
    DuplicateUid {
        /// The later auditor's place in the chain, counted from 1.
        position: usize,
        /// The uid of both.
        uid: u32,
    },
    /// Two of the chain and the model have one port.
    #[snafu(display(
        "failed to read the redirect: port {port} of auditor {position} is the one of {holder} too, accepted one \
         port for each"
    ))]
    DuplicatePort {
        /// The later auditor's place in the chain, counted from 1.
        position: usize,
        /// The port of both.
        port: NonZeroU16,
        /// Who has it as well: `the model` or `auditor 1`.
        holder: String,
    },
    /// An outbound port comes twice.
    #[snafu(display("failed to read the redirect: outbound port {port} comes twice, accepted each once"))]
    DuplicateOutbound {
        /// That port.
        port: NonZeroU16,
    },
}
