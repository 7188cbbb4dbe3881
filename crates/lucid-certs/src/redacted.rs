//! Requests for Secrets that never log response bodies.
//!
//! If a response does not deserialize, [`Api`] logs its whole body at WARN, including private keys.

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Error,
    api::{GetParams, ListParams, ObjectList, Patch, PatchParams, PostParams},
    core::Request,
};
use serde::de::{DeserializeOwned, Error as _};

pub(crate) async fn get_opt(api: &Api<Secret>, name: &str) -> Result<Option<Secret>, Error> {
    let request = Request::new(api.resource_url()).get(name, &GetParams::default());
    match client(api).request_text(request.map_err(Error::BuildRequest)?).await {
        Err(Error::Api(status)) if status.is_not_found() => Ok(None),
        answer => read(&answer?).map(Some),
    }
}

/// As [`get_opt`], with the permission to list the Secret.
pub(crate) async fn list_opt(api: &Api<Secret>, name: &str) -> Result<Option<Secret>, Error> {
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    let request = Request::new(api.resource_url()).list(&params).map_err(Error::BuildRequest)?;
    let secrets: ObjectList<Secret> = read(&client(api).request_text(request).await?)?;
    Ok(secrets.items.into_iter().next())
}

pub(crate) async fn replace(api: &Api<Secret>, name: &str, secret: &Secret) -> Result<Secret, Error> {
    let body = serde_json::to_vec(secret).map_err(Error::SerdeError)?;
    let request = Request::new(api.resource_url()).replace(name, &PostParams::default(), body);
    read(&client(api).request_text(request.map_err(Error::BuildRequest)?).await?)
}

/// Creates `secret` by server-side apply as `manager`, without force.
pub(crate) async fn apply(
    api: &Api<Secret>,
    name: &str,
    manager: &str,
    secret: &Secret,
) -> Result<Secret, Error> {
    let params = PatchParams::apply(manager);
    let request = Request::new(api.resource_url()).patch(name, &params, &Patch::Apply(secret));
    read(&client(api).request_text(request.map_err(Error::BuildRequest)?).await?)
}

fn client(api: &Api<Secret>) -> Client {
    api.clone().into_client()
}

fn read<T: DeserializeOwned>(answer: &str) -> Result<T, Error> {
    serde_json::from_str(answer).map_err(|error| {
        // The original message may quote the body.
        let place =
            format!("the response is not a Secret (line {}, column {})", error.line(), error.column());
        Error::SerdeError(serde_json::Error::custom(place))
    })
}
