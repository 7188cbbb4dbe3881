//! The intake and the exit of the chain.

use std::{io, net::SocketAddr};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Incoming},
    header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue, VIA},
    http::uri::{Authority, Scheme},
};
use lucid_chain::Egress;
use serde_json::json;

use crate::{
    forward::Forward,
    original::{Destination, Peer},
    routes::{ROUTE, Routes, random_hex},
    target::{Refusal, Target},
};

pub(crate) type HttpResponse = Response<BoxBody<Bytes, hyper::Error>>;

#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) settings: Egress,
    forward: Forward,
    routes: Routes,
    /// Pseudonym of this process in the header `Via`.
    via: String,
}

impl Proxy {
    pub(crate) fn new(settings: Egress, forward: Forward) -> io::Result<Self> {
        let via = format!("lucid-egress-{}", random_hex()?);
        Ok(Self { settings, forward, routes: Routes::default(), via })
    }

    pub(crate) async fn forward_to_chain(
        &self,
        destination: Destination,
        peer: Peer,
        request: Request<Incoming>,
    ) -> HttpResponse {
        if destination == Destination::Intake && is_probe(&request) {
            return healthy();
        }
        let (mut parts, body) = request.into_parts();
        lucid_proxy::insert_host(&mut parts);
        let mut request = Request::from_parts(parts, body);
        // The kubelet means the auditor itself.
        if let Destination::Auditor(port) = destination
            && !peer.is_own
            && is_probe(&request)
        {
            let probed = async { self.forward.send(&self.local(port, None)?, request).await };
            return probed.await.map_or_else(refused, |response| response.map(BodyExt::boxed));
        }
        let forwarded = async {
            check_protocol(&request)?;
            let is_outbound = match destination {
                Destination::Host(_) => true,
                Destination::Auditor(_) => self.settings.upstream.is_some(),
                Destination::Model | Destination::Intake => false,
            };
            // Otherwise another pod could call hosts and the upstream in the name of this one.
            if is_outbound && !peer.is_own {
                let message =
                    format!("{} is not in this pod: only its containers may call other hosts", peer.address);
                return Err((StatusCode::FORBIDDEN, message));
            }
            let target = self.target(destination, request.headers().get(HOST))?;
            let route = self.routes.insert(target);
            let route = route.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
            // Replaces a header of the caller.
            let token = HeaderValue::from_str(route.token()).map_err(|error| internal(&error))?;
            request.headers_mut().insert(ROUTE, token);
            // Without the rules, the first auditor would see the address itself.
            if destination == Destination::Model {
                lucid_proxy::append_client(request.headers_mut(), peer.address);
            }
            let first = self.local(self.settings.first.get(), None)?;
            Ok((self.forward.send(&first, request).await?, route))
        };
        match forwarded.await {
            // The route is valid as long as the response is sent.
            Ok((response, route)) => hold(response, route),
            Err(refusal) => refused(refusal),
        }
    }

    pub(crate) async fn forward_to_destination(
        &self,
        peer: Peer,
        mut request: Request<Incoming>,
    ) -> HttpResponse {
        let token = request.headers_mut().remove(ROUTE);
        if token.is_none() && is_probe(&request) {
            return healthy();
        }
        let forwarded = async {
            if !peer.is_own {
                let message =
                    format!("{} is not in this pod: only the last auditor may call this port", peer.address);
                return Err((StatusCode::FORBIDDEN, message));
            }
            check_protocol(&request)?;
            let target = match token.map(|token| self.routes.get(&token)) {
                Some(Some(target)) => target,
                // Without network rules, all calls are for the upstream or the model.
                None if self.settings.intake.is_none() => {
                    self.check_loop(&request)?;
                    self.target(Destination::Auditor(self.settings.first.get()), None)?
                }
                None => {
                    let message = format!(
                        "the header {ROUTE} is missing: an auditor did not forward it, so the destination is unknown"
                    );
                    return Err((StatusCode::MISDIRECTED_REQUEST, message));
                }
                Some(None) => {
                    let message = format!(
                        "the header {ROUTE} does not belong to a request in the chain: the request is complete, or the value is forged"
                    );
                    return Err((StatusCode::MISDIRECTED_REQUEST, message));
                }
            };
            let version = request.version();
            lucid_proxy::append_via(request.headers_mut(), version, &self.via);
            self.forward.send(&target, request).await
        };
        match forwarded.await {
            Ok(response) => response.map(BodyExt::boxed),
            Err(refusal) => refused(refusal),
        }
    }

    /// Fails if the request has passed the exit before. Without network rules, a Service or proxy can lead from the upstream
    /// to the first auditor.
    fn check_loop(&self, request: &Request<Incoming>) -> Result<(), Refusal> {
        let mut passed = request.headers().get_all(VIA).into_iter().filter_map(|value| value.to_str().ok());
        match passed.any(|value| value.contains(&self.via)) {
            true => {
                let message =
                    "the request came back to this pod: its destination, or the upstream, leads to the chain";
                Err((StatusCode::LOOP_DETECTED, message.to_owned()))
            }
            false => Ok(()),
        }
    }

    /// Returns the server that a request with this `Host` goes to when it has passed the chain.
    fn target(&self, destination: Destination, host: Option<&HeaderValue>) -> Result<Target, Refusal> {
        match (destination, &self.settings.upstream) {
            (Destination::Host(address), _) => self.remote(address, host),
            (Destination::Intake, _) => {
                let message = "no network rule redirected the connection: its destination is unknown";
                Err((StatusCode::MISDIRECTED_REQUEST, message.to_owned()))
            }
            (Destination::Auditor(_), Some(upstream)) => {
                let (scheme, authority) = upstream.origin().split_once("://").unwrap_or_default();
                let authority: Authority = authority.parse().map_err(|error| internal(&error))?;
                let host = HeaderValue::from_str(authority.as_str()).ok();
                let scheme = scheme.parse().map_err(|error| internal(&error))?;
                Ok(Target { scheme, authority, host, is_inside: false })
            }
            (Destination::Model, _) | (Destination::Auditor(_), None) => {
                self.local(self.settings.model.get(), host)
            }
        }
    }

    fn local(&self, port: u16, host: Option<&HeaderValue>) -> Result<Target, Refusal> {
        let authority = format!("localhost:{port}").parse().map_err(|error| internal(&error))?;
        Ok(Target { scheme: Scheme::HTTP, authority, host: host.cloned(), is_inside: true })
    }

    /// Returns the server at `address`. A host that is allowed by its name is resolved again: the caller chooses the
    /// address, and may connect to any with this name.
    fn remote(&self, address: SocketAddr, host: Option<&HeaderValue>) -> Result<Target, Refusal> {
        let text = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
        let name = text.parse::<Authority>().ok().map(|authority| authority.host().to_owned());
        let port = address.port();
        let server = match (&self.settings.allowed_hosts, name) {
            (None, _) => address.to_string(),
            (Some(allowed), _) if allowed.allow_address(address.ip()) => address.to_string(),
            (Some(allowed), Some(name)) if allowed.allow_name(&name, port) => format!("{name}:{port}"),
            (Some(allowed), _) => {
                let message =
                    format!("host {text:?} at {address} is not among the allowed hosts, expected {allowed}");
                return Err((StatusCode::FORBIDDEN, message));
            }
        };
        let authority = server.parse().map_err(|error| internal(&error))?;
        Ok(Target { scheme: Scheme::HTTP, authority, host: host.cloned(), is_inside: false })
    }
}

/// Refuses tunnels and protocols other than HTTP, whose content the auditors cannot check.
fn check_protocol(request: &Request<Incoming>) -> Result<(), Refusal> {
    if *request.method() == Method::CONNECT {
        let message =
            "CONNECT opens a tunnel, which auditors cannot check, expected a request to the host itself";
        return Err((StatusCode::NOT_IMPLEMENTED, message.to_owned()));
    }
    match lucid_proxy::upgrade(request.headers()) {
        Some(protocol) => {
            let message =
                format!("expected HTTP, found an upgrade to {protocol:?}, which auditors cannot check");
            Err((StatusCode::NOT_IMPLEMENTED, message))
        }
        None => Ok(()),
    }
}

/// Keeps `held` until the response is sent.
pub(crate) fn hold<B>(response: Response<B>, held: impl Send + Sync + 'static) -> HttpResponse
where
    B: Body<Data = Bytes, Error = hyper::Error> + Send + Sync + 'static,
{
    response.map(|body| {
        body.map_frame(move |frame| {
            let _ = &held;
            frame
        })
        .boxed()
    })
}

fn internal(error: &impl ToString) -> Refusal {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

fn is_probe(request: &Request<Incoming>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD) && request.uri().path() == "/health"
}

fn healthy() -> HttpResponse {
    json(StatusCode::OK, &json!({"status": "ok"}))
}

pub(crate) fn refused((status, message): Refusal) -> HttpResponse {
    tracing::warn!(status = status.as_u16(), "{message}");
    json(status, &json!({"error": format!("lucid-egress: {message}")}))
}

fn json(status: StatusCode, body: &serde_json::Value) -> HttpResponse {
    let body = body.to_string();
    let length = HeaderValue::from(body.len());
    let mut response = Response::new(Full::from(body).map_err(|never| match never {}).boxed());
    response.headers_mut().insert(CONTENT_LENGTH, length);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
