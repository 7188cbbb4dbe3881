//! Starts nodes.

use std::{fs, net::SocketAddr, time::Duration};

use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use snafu::{OptionExt as _, ResultExt as _};

use super::{
    CGROUP_FAILED, DNS, NO_NODE, Node, POD_RANGE, Place, SET_UP_FAILED, STAGE_FAILED, config, images::Ctr,
};
use crate::{
    Cluster, Error,
    binaries::{Binaries, Component},
    cgroup::Cgroup,
    error::FILES,
    image,
    layout::KUBERNETES_SERVICE,
    network::{Namespace, Network},
    process, readiness,
};

/// Masquerades traffic from pods to this machine, which has no route back to pods. Every other destination has a route, so that
/// the rules of kube-proxy apply, but is unreachable.
const SET_UP_NETWORK: &str = r#"
ip route add default dev eth0
ip address add "$DNS/32" dev lo
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
nft add table ip testbed
nft add chain ip testbed leave '{ type nat hook postrouting priority srcnat; }'
nft add rule ip testbed leave ip saddr "$PODS" oifname eth0 masquerade
"#;

pub(crate) async fn start(cluster: &mut Cluster, binaries: &Binaries, count: u8) -> Result<(), Error> {
    let network = cluster.network.as_ref().whatever_context(NO_NODE)?;
    let mut set_up = network.command("sh");
    set_up.args(["-ec", SET_UP_NETWORK]).env("PODS", POD_RANGE).env("DNS", DNS.to_string());
    process::output(&mut set_up).whatever_context(SET_UP_FAILED)?;
    let name = cluster.folder.path().file_name().unwrap_or_default().to_string_lossy();
    cluster.cgroup = Some(Cgroup::create(&name).whatever_context(CGROUP_FAILED)?);
    config::write_files(cluster).whatever_context(FILES)?;
    cluster.run(Component::KubeProxy, binaries, &config::proxy_args(cluster))?;
    cluster.run(Component::CoreDns, binaries, &config::dns_args(cluster))?;

    for index in 0..count {
        add(cluster, binaries, Place::new(&cluster.folder, index)).await?;
    }
    let namespace = cluster.network.as_ref().map(Network::namespace);
    for (component, address) in [
        (Component::KubeProxy, SocketAddr::from((KUBERNETES_SERVICE, 443))),
        (Component::CoreDns, SocketAddr::from((DNS, 53))),
    ] {
        readiness::until(cluster, component.name(), || reaches(namespace.clone(), address)).await?;
    }
    Ok(())
}

/// Adds one node, and waits until it is ready.
async fn add(cluster: &mut Cluster, binaries: &Binaries, place: Place) -> Result<(), Error> {
    let network = cluster.network.as_ref().whatever_context(NO_NODE)?;
    let cgroup = cluster.cgroup.as_ref().whatever_context(NO_NODE)?;
    let cgroup = cgroup.child(&place.name).whatever_context(CGROUP_FAILED)?;
    let node = Node::create(place.clone(), network, &cluster.folder, binaries)?;
    place.write_files(cluster, binaries, &cgroup).whatever_context(FILES)?;

    let run = |cluster: &mut Cluster, component: Component, arguments: &[String]| {
        let command = node.command(binaries.path(component));
        let log = cluster.folder.log(&place.own(component.name()));
        cluster.start_process(component.name(), command, arguments, log)
    };
    run(cluster, Component::Containerd, &place.containerd_args())?;
    let ctr = Ctr::of(&node);
    readiness::until(cluster, Component::Containerd.name(), || containerd(ctr.clone())).await?;
    for (image, program) in [(config::PAUSE_IMAGE, Component::Pause), (config::HELLO_IMAGE, Component::Hello)]
    {
        let archive = image::of_program(image, &binaries.path(program)).whatever_context(STAGE_FAILED)?;
        let path = cluster.folder.path().join("image.tar");
        fs::write(&path, archive).whatever_context(STAGE_FAILED)?;
        ctr.load(&path)?;
        fs::remove_file(path).whatever_context(STAGE_FAILED)?;
    }
    let arguments = place.kubelet_args(cluster);
    run(cluster, Component::Kubelet, &arguments)?;
    cluster.nodes.push(node);
    let nodes = Api::<NodeObject>::all(cluster.client());
    readiness::until(cluster, Component::Kubelet.name(), || ready(nodes.clone(), place.name.clone())).await
}

async fn containerd(ctr: Ctr) -> Result<(), String> {
    let answer = tokio::task::spawn_blocking(move || ctr.run(&["version"]));
    let answer = answer.await.map_err(|error| error.to_string())?;
    answer.map(|_| ()).map_err(|error| error.to_string())
}

async fn ready(nodes: Api<NodeObject>, name: String) -> Result<(), String> {
    let node = nodes.get_opt(&name).await.map_err(|error| error.to_string())?;
    let status = node.ok_or("it has not registered")?.status.unwrap_or_default();
    let condition = status.conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
    match condition {
        Some(condition) if condition.status == "True" => Ok(()),
        Some(condition) => Err(condition.message.unwrap_or_default()),
        None => Err("it has not reported its condition".to_owned()),
    }
}

async fn reaches(namespace: Option<Namespace>, service: SocketAddr) -> Result<(), String> {
    let namespace = namespace.ok_or("there is no network")?;
    let connecting = tokio::task::spawn_blocking(move || namespace.connect(service, Duration::from_secs(1)));
    let connected = connecting.await.map_err(|error| error.to_string())?;
    connected.map(|_| ()).map_err(|error| format!("{service}: {error}"))
}
