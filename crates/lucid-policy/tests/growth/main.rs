//! The work that a pod takes grows no faster than the pod, whatever its author makes large. Work is counted in allocated
//! bytes, which no other process changes: this is the only test of its process.

mod pods;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SIZE: usize = 50_000;

/// The pod is injected, created and updated.
fn allocated(pod: &str) -> usize {
    let old = pod.replacen("web", "old", 1).replacen(r#""spec":{"#, r#""spec":{"a":0,"#, 1);
    let region = Region::new(ALLOCATOR);
    pods::mutate(pod);
    pods::validate(pod, None);
    pods::validate(pod, Some(&old));
    region.change().bytes_allocated
}

#[test]
fn work_is_linear_in_the_size_of_a_pod() {
    // Whatever is made once is made by now.
    allocated(&pods::all(SIZE)[0].1);
    for ((name, small), (_, large)) in pods::all(SIZE).into_iter().zip(pods::all(4 * SIZE)) {
        assert!(large.len() <= 9 * SIZE, "{name}: {} bytes", large.len());
        let (one, four) = (allocated(&small), allocated(&large));
        println!("{name}: {} bytes allocate {one}, {} bytes {four}", small.len(), large.len());
        assert!(four <= one * 6, "{name}: {one} bytes, then {four}");
        // Four views of the pod, each of lists that double as they grow.
        assert!(four <= 300 * large.len() + (8 << 20), "{name}: {} bytes allocate {four}", large.len());
    }
}
