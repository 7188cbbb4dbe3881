//! Checks that a chain fits into a pod.
//!
//! The API server or a node would reject these pods as well, but with a message that names an injected container.

use std::net::IpAddr;

use lucid_text::names::is_loopback_name;
use snafu::{Snafu, ensure};

use super::{model_port::ModelPort, settings::Settings};
use crate::{
    catalogue::Auditor,
    keys,
    mode::{Direction, Intercept},
    pod::PodView,
};

/// Hint for pods without requests, which the API server derives before it calls webhooks.
const DERIVED: &str = "; where only limits are written, the API server derives the requests from the containers: write them too";

/// Reason why a pod cannot get a chain.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
#[non_exhaustive]
pub enum ImpossibleReason {
    /// The namespace configures a chain and no valid version of it is known.
    #[snafu(display("failed to read the chain of the namespace: {problem}"))]
    NamespaceChain {
        /// ConfigMap, key and cause.
        problem: String,
    },
    /// The containers of the pod declare every port that the auditor could use.
    #[snafu(display(
        "failed to find a free port for {container}: the pod declares all of them; remove the ports that it does not serve"
    ))]
    NoFreePort {
        /// The auditor's container.
        container: String,
    },
    /// The pod has no containers.
    #[snafu(display(
        "failed to make an auditor chain: spec.containers is empty, expected at least one container"
    ))]
    NoContainers,
    /// The pod is for Windows nodes; auditors run on Linux.
    #[snafu(display(
        "failed to make an auditor chain: expected spec.os.name linux, on which auditors run, found windows"
    ))]
    Windows,
    /// The pod uses the node's network namespace, in which the rules would redirect traffic of the whole node.
    #[snafu(display(
        "failed to redirect traffic to the auditors: spec.hostNetwork is true, and the rules would apply to the whole node; \
         expected false, or in mode audit the annotation {}: \"{}\"",
        keys::INTERCEPT, Intercept::Env.as_str()
    ))]
    HostNetwork,
    /// Applications get the address of a chain that leads nowhere.
    #[snafu(display(
        "failed to find a destination of outbound traffic: {} is outbound, without network rules no other host is known, and \
         no container declares the model's port; expected a URL in {}, the model's port in {}, or {}: \"{}\"",
        keys::DIRECTION, keys::UPSTREAM, keys::TARGET_PORT, keys::INTERCEPT, Intercept::Redirect.as_str()
    ))]
    NoDestination,
    /// Without network rules, calls to the model in the pod and to the upstream cannot be told apart.
    #[snafu(display(
        "failed to separate inbound from outbound traffic: {} is both with the upstream {upstream}, and there are no network \
         rules; expected {}: \"{}\", or direction inbound or outbound",
        keys::DIRECTION, keys::INTERCEPT, Intercept::Redirect.as_str()
    ))]
    AmbiguousDestination {
        /// Upstream of the pod.
        upstream: String,
    },
    /// The upstream is the pod itself.
    #[snafu(display(
        "failed to send outbound traffic to {upstream} ({}): {host} is this pod, and the calls would come back; expected \
         another host, or the port of a model in this pod in {}",
        keys::UPSTREAM,
        keys::TARGET_PORT
    ))]
    UpstreamInPod {
        /// Upstream of the pod.
        upstream: String,
        /// Its host.
        host: String,
    },
    /// No server can be reached at the address of the upstream.
    #[snafu(display(
        "failed to send outbound traffic to {upstream} ({}): {host} is a link-local, multicast or broadcast address; expected \
         the name or another address of a host",
        keys::UPSTREAM
    ))]
    UpstreamUnreachable {
        /// Upstream of the pod.
        upstream: String,
        /// Its host.
        host: String,
    },
    /// The allow list does not contain the upstream.
    #[snafu(display(
        "failed to send outbound traffic to {upstream} ({}): it is not among the allowed hosts, expected {allowed} ({})",
        keys::UPSTREAM,
        keys::ALLOWED_HOSTS
    ))]
    UpstreamNotAllowed {
        /// Upstream of the pod.
        upstream: String,
        /// Allowed hosts of the pod.
        allowed: String,
    },
    /// The chain cannot be written as network rules.
    #[snafu(display("failed to redirect traffic to the auditors: {problem}"))]
    Redirect {
        /// Cause.
        problem: String,
    },
    /// Several ports of the model need auditors with a listener for each.
    #[snafu(display(
        "failed to guard the ports {ports} of the model: auditor {auditor} listens on one port; expected one port in {}, or \
         routes: true in the entry of the auditor, if it serves LUCID_ROUTES",
        keys::TARGET_PORT
    ))]
    RoutesUnsupported {
        /// Ports of the model.
        ports: String,
        /// Name of the auditor.
        auditor: String,
    },
    /// The pod-level `spec.resources` leave no room for the auditors.
    #[snafu(display(
        "failed to fit the auditors into spec.resources of the pod: {}{}",
        shortages,
        if *is_of_requests { DERIVED } else { "" }
    ))]
    PodResources {
        /// All resources that are short.
        shortages: String,
        /// `true` if requests are among them.
        is_of_requests: bool,
    },
}

impl ImpossibleReason {
    /// Machine-readable identifier, as [`Warning::reason`](crate::Warning::reason).
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NamespaceChain { .. } => "InvalidNamespaceChain",
            Self::NoFreePort { .. } => "NoFreePort",
            Self::NoContainers => "NoContainers",
            Self::Windows => "Windows",
            Self::HostNetwork => "HostNetwork",
            Self::NoDestination => "NoDestination",
            Self::AmbiguousDestination { .. } => "AmbiguousDestination",
            Self::UpstreamInPod { .. } => "UpstreamInPod",
            Self::UpstreamUnreachable { .. } => "UpstreamUnreachable",
            Self::UpstreamNotAllowed { .. } => "UpstreamNotAllowed",
            Self::Redirect { .. } => "RedirectImpossible",
            Self::RoutesUnsupported { .. } => "RoutesUnsupported",
            Self::PodResources { .. } => "PodResources",
        }
    }
}

pub(super) fn check_pod(pod: &PodView<'_>, intercept: Intercept) -> Result<(), ImpossibleReason> {
    ensure!(!pod.is_windows(), WindowsSnafu);
    ensure!(!pod.containers().is_empty(), NoContainersSnafu);
    ensure!(!pod.host_network() || intercept != Intercept::Redirect, HostNetworkSnafu);
    Ok(())
}

/// Fails if outbound traffic would not reach its destination.
pub(super) fn check_destination(
    pod: &PodView<'_>,
    settings: &Settings,
    is_assumed: bool,
) -> Result<(), ImpossibleReason> {
    let upstream = settings.upstream.as_ref().map(|setting| &setting.value);
    let redirects = settings.intercept.value == Intercept::Redirect;
    match (settings.direction.value, upstream) {
        (Direction::Inbound, _) => return Ok(()),
        (Direction::Outbound, None) => {
            ensure!(redirects || !is_assumed, NoDestinationSnafu);
        }
        (Direction::Both, Some(upstream)) => {
            ensure!(redirects, AmbiguousDestinationSnafu { upstream: upstream.to_string() });
        }
        _ => {}
    }
    if let Some(upstream) = upstream {
        let (host, _) = upstream.host_and_port();
        ensure!(!is_pod(pod, host), UpstreamInPodSnafu { upstream: upstream.to_string(), host });
        ensure!(!is_unreachable(host), UpstreamUnreachableSnafu { upstream: upstream.to_string(), host });
    }
    if let (Some(upstream), Some(allowed)) = (upstream, &settings.allowed_hosts) {
        let (upstream_text, allowed_text) = (upstream.to_string(), allowed.value.to_string());
        ensure!(
            allowed.value.allow_upstream(upstream),
            UpstreamNotAllowedSnafu { upstream: upstream_text, allowed: allowed_text }
        );
    }
    Ok(())
}

/// Fails if the model has several ports and a member of the chain listens on one only.
pub(super) fn check_routes(model: &ModelPort, chain: &[&Auditor]) -> Result<(), ImpossibleReason> {
    let single = chain.iter().find(|auditor| !auditor.serves_routes());
    if let Some(auditor) = single.filter(|_| !model.further.is_empty()) {
        let ports: Vec<_> = model.ports().map(|port| port.to_string()).collect();
        return RoutesUnsupportedSnafu { ports: ports.join(","), auditor: auditor.name() }.fail();
    }
    Ok(())
}

/// Returns `true` if `host` is the pod itself, by a name in its hosts file or an address.
fn is_pod(pod: &PodView<'_>, host: &str) -> bool {
    let is_unspecified =
        |host: &str| host.parse::<IpAddr>().is_ok_and(|it| it.to_canonical().is_unspecified());
    let is_local = |host: &str| is_loopback_name(host) || is_unspecified(host);
    let is_named = |(address, name): (Option<&str>, &str)| {
        name.eq_ignore_ascii_case(host) && address.is_none_or(is_local)
    };
    is_local(host) || pod.host_names().any(is_named)
}

/// Returns `true` for addresses that no connection can be made to. An upstream cannot name the interface that a
/// link-local IPv6 address needs; link-local IPv4 addresses, such as those of proxies on the node, need none.
fn is_unreachable(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok_and(|address| match address.to_canonical() {
        IpAddr::V4(address) => address.is_multicast() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_multicast() || address.is_unicast_link_local(),
    })
}
