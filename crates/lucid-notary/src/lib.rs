//! Image references, digests, and the client of a notarization registry (Verifier)
