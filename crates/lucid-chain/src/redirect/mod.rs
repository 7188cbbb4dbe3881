//! Network rules that send a pod's traffic through its chain.
//!
//! A [`Redirect`] is passed as JSON in the environment variable [`REDIRECT_ENV`](crate::keys::REDIRECT_ENV) to the
//! init container [`lucid-init`](crate::keys::INIT_CONTAINER), which installs the rules with `nft` or
//! `iptables-restore` and checks that they work.
//!
//! ```
//! use lucid_chain::redirect::Redirect;
//!
//! let plan = r#"{"version":1,"chain":[{"uid":20001,"port":8090},{"uid":20002,"port":8093}],"model":5000,"inbound":true,"outbound":[]}"#;
//! let redirect = Redirect::from_json(plan)?;
//! assert_eq!(redirect.to_json(), plan);
//! assert!(redirect.nft_script().contains("tcp dport { 5000, 8093 } redirect to :8090"));
//! # Ok::<(), lucid_chain::Error>(())
//! ```
//!
//! # Rules
//!
//! The *guarded* ports are the model's port and the ports of all auditors except the first. A model with several
//! ports has one route for each: every auditor listens on one port per route, and calls stay on
//! their route.
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
//! - With open ports, a connection from outside the pod is refused unless it is to one of
//!   these, to a port guarded from outside, or to the first auditor. The port counts that the client connects to,
//!   before any translation in the pod. Connections of the pod itself and their replies are not affected.
//! - A connection to a guarded port that predates the rules is reset, whichever side sends the next packet.
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

use crate::{chain::MAX_CHAIN, error::Error};

/// Largest uid that the API accepts in `runAsUser`.
const MAX_UID: u32 = i32::MAX.cast_unsigned();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hop {
    pub(crate) uid: u32,
    pub(crate) port: NonZeroU16,
}

pub(crate) const MAX_ROUTES: usize = 8;

/// Ports of one route: those of the auditors, in order, and the model's.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Route {
    first: NonZeroU16,
    later: Vec<NonZeroU16>,
    model: NonZeroU16,
}

impl Route {
    fn auditors(&self) -> impl Iterator<Item = NonZeroU16> + '_ {
        std::iter::once(self.first).chain(self.later.iter().copied())
    }

    fn ports(&self) -> impl Iterator<Item = NonZeroU16> + '_ {
        self.auditors().chain([self.model])
    }
}

/// Parameters of the rules that [`lucid-init`](crate::keys::INIT_CONTAINER) installs: the chain, the model and the
/// audited traffic.
///
/// Holds between 1 and [`MAX_CHAIN`] auditors, and up to 8 routes. No uid is root's, and uids and
/// ports are unique.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    uids: Vec<u32>,
    route: Route,
    more_routes: Vec<Route>,
    inbound: bool,
    outbound: BTreeSet<NonZeroU16>,
    exit: Option<NonZeroU16>,
    open_ports: Option<BTreeSet<NonZeroU16>>,
}

impl Redirect {
    /// Creates a redirect to `chain`, in order, in front of the model on port `model`.
    ///
    /// With `inbound`, calls from outside the pod to the model pass through the chain. `outbound` lists the ports of
    /// other hosts that calls from the pod reach only through the chain.
    pub(crate) fn new(
        chain: impl IntoIterator<Item = Hop>,
        model: NonZeroU16,
        inbound: bool,
        outbound: impl IntoIterator<Item = NonZeroU16>,
    ) -> Result<Self, Error> {
        let mut uids = BTreeSet::new();
        let mut ports = BTreeMap::from([(model, "the model".to_owned())]);
        let mut hops = Vec::new();
        for Hop { uid, port } in chain {
            // The intake of outbound traffic is a hop besides the auditors.
            check(hops.len() <= MAX_CHAIN, || {
                format!("chain is longer than the limit of {MAX_CHAIN} auditors")
            })?;
            let position = hops.len() + 1;
            check((1..=MAX_UID).contains(&uid), || {
                format!("uid of auditor {position}: expected 1 to {MAX_UID}, found {uid}")
            })?;
            check(uids.insert(uid), || {
                format!("uid {uid} of auditor {position} is already used by an earlier auditor")
            })?;
            if let Some(holder) = ports.insert(port, format!("auditor {position}")) {
                let problem = format!("port {port} of auditor {position} is already used by {holder}");
                return Err(invalid(problem));
            }
            hops.push(Hop { uid, port });
        }
        check(!hops.is_empty(), || format!("chain is empty, expected 1 to {MAX_CHAIN} auditors"))?;

        let mut outbound_ports = BTreeSet::new();
        for port in outbound {
            check(outbound_ports.insert(port), || {
                format!("expected each outbound port once, found {port} twice")
            })?;
        }
        let uids = hops.iter().map(|hop| hop.uid).collect();
        let first = hops.remove(0).port;
        let route = Route { first, later: hops.iter().map(|hop| hop.port).collect(), model };
        let outbound = outbound_ports;
        Ok(Self { uids, route, more_routes: Vec::new(), inbound, outbound, exit: None, open_ports: None })
    }

    /// Adds a route to another port of the model. `ports` are those on which the auditors listen for it, in the order
    /// of the chain.
    pub(crate) fn with_route(
        mut self,
        ports: impl IntoIterator<Item = NonZeroU16>,
        model: NonZeroU16,
    ) -> Result<Self, Error> {
        let number = self.routes().count() + 1;
        if number > MAX_ROUTES {
            return Err(invalid(format!("expected at most {MAX_ROUTES} routes, found more")));
        }
        // One more than expected, so that an endless iterator ends.
        let expected = self.uids.len();
        let mut later: Vec<_> = ports.into_iter().take(expected + 1).collect();
        if later.len() != expected {
            let found = if later.len() > expected { "more".to_owned() } else { later.len().to_string() };
            return Err(invalid(format!(
                "expected a port for each of {expected} auditors in route {number}, found {found}"
            )));
        }
        let first = later.remove(0);
        let route = Route { first, later, model };
        let mut taken: BTreeSet<_> = self.routes().flat_map(Route::ports).collect();
        if let Some(port) = route.ports().find(|port| !taken.insert(*port)) {
            return Err(invalid(format!("expected different ports on all routes, found {port} twice")));
        }
        self.more_routes.push(route);
        Ok(self)
    }

    /// Makes the first member of the chain its last hop as well, like `lucid-egress`: the last auditor forwards to its
    /// port `exit`, and only it may connect to the model.
    pub(crate) fn with_exit(mut self, exit: NonZeroU16) -> Result<Self, Error> {
        let routes = self.routes().count();
        check(routes == 1, || format!("expected one route with an exit, found {routes}"))?;
        let is_taken = self.route.ports().any(|port| port == exit);
        check(!is_taken, || format!("exit port {exit} is already used by the chain"))?;
        self.exit = Some(exit);
        Ok(self)
    }

    /// Closes all ports of the pod except `ports` and those through which its chain is reached.
    #[must_use]
    pub(crate) fn with_open_ports(self, ports: impl IntoIterator<Item = NonZeroU16>) -> Self {
        Self { open_ports: Some(ports.into_iter().collect()), ..self }
    }

    fn routes(&self) -> impl Iterator<Item = &Route> {
        std::iter::once(&self.route).chain(&self.more_routes)
    }

    /// Returns the auditors, in order, with their ports on the first route; at least one.
    pub(crate) fn chain(&self) -> impl Iterator<Item = Hop> + '_ {
        self.uids.iter().zip(self.route.auditors()).map(|(uid, port)| Hop { uid: *uid, port })
    }

    /// Target of all redirected calls that have no other route.
    pub(crate) fn first_port(&self) -> NonZeroU16 {
        self.route.first
    }

    /// Returns the port of the first auditor on each route.
    pub fn first_ports(&self) -> impl Iterator<Item = NonZeroU16> + '_ {
        self.routes().map(|route| route.first)
    }

    pub(crate) fn model(&self) -> NonZeroU16 {
        self.route.model
    }

    pub(crate) fn models(&self) -> impl Iterator<Item = NonZeroU16> + '_ {
        self.routes().map(|route| route.model)
    }

    /// Returns the ports of other hosts that calls from the pod reach only through the chain, in ascending order.
    pub fn outbound(&self) -> impl Iterator<Item = NonZeroU16> + '_ {
        self.outbound.iter().copied()
    }

    /// Returns the ports of the pod that calls from inside reach only through the chain: the model's and those of all
    /// auditors except the first. Calls to each are redirected to the port of the first auditor that it maps to.
    pub fn guarded(&self) -> BTreeMap<NonZeroU16, NonZeroU16> {
        let of_route = |route: &Route| {
            let (first, model) = (route.first, route.model);
            route.later.clone().into_iter().chain([model]).map(move |port| (port, first))
        };
        self.routes().flat_map(of_route).chain(self.exit.map(|exit| (exit, self.route.first))).collect()
    }

    /// Returns the ports of the pod that calls from outside reach only through the chain: those of
    /// [`Redirect::guarded`], without the model's if inbound traffic is not
    /// audited.
    fn guarded_from_outside(&self) -> BTreeMap<NonZeroU16, NonZeroU16> {
        let mut ports = self.guarded();
        if !self.inbound {
            ports.retain(|port, _| self.models().all(|model| model != *port));
        }
        ports
    }

    /// Returns the ports on which calls from outside enter the chain.
    pub(crate) fn entries(&self) -> BTreeSet<NonZeroU16> {
        self.guarded_from_outside().into_keys().chain(self.first_ports()).collect()
    }

    /// Returns the ports that calls from outside may connect to, or `None` if none is closed.
    fn reachable_from_outside(&self) -> Option<BTreeSet<NonZeroU16>> {
        Some(self.open_ports.as_ref()?.union(&self.entries()).copied().collect())
    }

    /// Returns the guarded ports that each auditor's uid may connect to: its own ports and its next hops. The first
    /// auditor's ports are not guarded.
    fn exceptions(&self) -> Vec<(u32, BTreeSet<NonZeroU16>)> {
        let mut exceptions: Vec<_> = self.uids.iter().map(|uid| (*uid, BTreeSet::new())).collect();
        for route in self.routes() {
            let next_ports = route.later.iter().copied().chain([self.exit.unwrap_or(route.model)]);
            for (((_, ports), own), next) in exceptions.iter_mut().zip(route.auditors()).zip(next_ports) {
                ports.extend([own, next]);
                ports.remove(&route.first);
            }
        }
        if let (Some((_, ports)), Some(_)) = (exceptions.first_mut(), self.exit) {
            ports.insert(self.route.model);
        }
        exceptions
    }
}

fn invalid(problem: impl std::fmt::Display) -> Error {
    Error::new(format!("failed to read the redirect: {problem}"))
}

fn check(is_valid: bool, problem: impl FnOnce() -> String) -> Result<(), Error> {
    if is_valid { Ok(()) } else { Err(invalid(problem())) }
}
