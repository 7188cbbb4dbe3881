//! A small notarization registry for development and air-gapped clusters
