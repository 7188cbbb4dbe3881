//! Decides whether a pod's auditor containers may run, as a pure function
