//! Reachability of the webhooks for unauthenticated callers.

use lucid_testbed::Cluster;

use super::check;
use crate::common::{create, operator, prepare, secured};

#[tokio::test]
async fn with_a_client_authority_only_the_api_server_is_answered() {
    let cluster = prepare(Cluster::builder().webhook_client("kube-apiserver").start().await.unwrap()).await;
    let authority = cluster.authority_path().to_str().unwrap().to_owned();
    let _operator = operator(&cluster, |operator| operator.env("LUCID_CLIENT_CA", authority)).await;
    create(&cluster, "shop", &secured("web")).await.stored().unwrap();
    let checked = check(&cluster).await;
    checked.assert("callers", "", "ok", &["without a client certificate are rejected"]);
    checked.assert("certificate", "mutate.lucid.computing", "ok", &["1 of 1 servers"]);
}
