//! Start of child processes that end with this one. The end-to-end tests include this file.

use std::{
    io,
    process::{Child, Command},
    sync::{LazyLock, mpsc},
    thread,
};

/// Starts a child from one thread that never ends. The kernel sends the parent-death signal when the *thread* that started the
/// child ends, and a test's thread may end before its process.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::Sender<io::Result<Child>>);
    static STARTER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                let _ = answer.send(command.spawn());
            }
        });
        orders
    });
    let (answer, child) = mpsc::channel();
    STARTER.send((command, answer)).map_err(io::Error::other)?;
    child.recv().map_err(io::Error::other)?
}
