//! The commands that do to files what the webhook does to pods.

mod api_server;
mod common;
mod docs;
mod explain;
mod formats;
mod inject;
mod other_controllers;
mod refused;
mod review;
