//! Public routers of LLM requests, where they are installed: `ROUTERS` names a directory that has a Python
//! environment for each, called after its package.

use crate::process;
use crate::proxies::Start;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

/// Each with one worker, in turn, quiet, without what a client does not see.
pub fn all(engine: SocketAddr) -> Vec<Start> {
    let Some(directory) = std::env::var_os("ROUTERS").map(PathBuf::from) else {
        println!("no public routers: ROUTERS is not set");
        return Vec::new();
    };
    let router = |name: &'static str, program: &str, arguments: &[&str]| {
        Start::new(name, |address, _| {
            let mut command = Command::new(directory.join(name).join("bin").join(program));
            command.args(arguments).args(["--host", "127.0.0.1"]);
            command.args(["--port", &address.port().to_string()]);
            command.args(["--worker-urls", &format!("http://{engine}")]);
            command.args(["--policy", "round_robin", "--log-level", "error"]);
            command
        })
    };
    let free_port = || process::free_address().port().to_string();
    let (smg, sglang) = (free_port(), free_port());
    vec![
        router("smg", "smg", &["launch", "--prometheus-port", &smg]),
        router(
            "sglang-router",
            "python",
            &["-m", "sglang_router.launch_router", "--prometheus-port", &sglang],
        ),
        router("vllm-router", "vllm-router", &[]),
    ]
}
