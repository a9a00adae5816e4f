//! Who is compared, and how each is started.

use std::{path::PathBuf, process::Command};

use tidegate_bench::{drivers, process::Program};

/// Others, outside of this program or needing something that it does not hold; `bench/queue/install` brings each.
const PEERS: [&str; 3] = ["graphile-worker-rs", "graphile-worker-node", "pgmq"];

/// One that is compared.
#[derive(Debug, Clone)]
pub struct Subject {
    pub name: String,
    pub program: Program,
    /// Runs of a drain at most: who is slow by design is not waited for.
    pub runs_max: usize,
    /// Whether it is asked for the latency.
    pub latency: bool,
    /// Whether it is asked to submit one by one.
    pub submit: bool,
}

/// Those that were asked for, or all; what cannot be installed is named and left out.
pub fn find(only: &[String]) -> Result<Vec<Subject>, String> {
    let names: Vec<&str> = drivers::NAMES.into_iter().chain(PEERS).collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(format!("--only {unknown}: there are {}", names.join(", ")));
    }
    let mut found = Vec::new();
    for name in names {
        if !only.is_empty() && !only.iter().any(|wanted| wanted == name) {
            continue;
        }
        if !PEERS.contains(&name) {
            found.push(subject(name, own(name)?));
            continue;
        }
        match install(name) {
            Ok(program) => found.push(subject(name, program)),
            Err(reason) => println!("- NOT COMPARED: {name}: {}", reason.trim()),
        }
    }
    Ok(found)
}

fn subject(name: &str, program: Program) -> Subject {
    Subject {
        name: name.to_owned(),
        program,
        runs_max: match name {
            "floor-single" | "ours-http" => 10_000,
            _ => usize::MAX,
        },
        latency: !matches!(name, "floor-single" | "floor-full"),
        submit: name != "floor-single",
    }
}

/// A driver of this program.
pub fn own(name: &str) -> Result<Program, String> {
    Ok(Program {
        path: std::env::current_exe().map_err(|error| error.to_string())?,
        args: vec!["driver".to_owned(), name.to_owned()],
        env: Vec::new(),
    })
}

fn install(name: &str) -> Result<Program, String> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../bench/queue/install");
    eprintln!("installing {name}");
    let output = Command::new(&script)
        .arg(name)
        .output()
        .map_err(|error| format!("{}: {error}", script.display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines().map(str::to_owned);
    let first = lines.next().ok_or("it does not say how to start it")?;
    if name == "pgmq" {
        let mut program = own(name)?;
        program.env.push(("PGMQ_SQL".to_owned(), first));
        return Ok(program);
    }
    Ok(Program {
        path: first.into(),
        args: lines.collect(),
        env: Vec::new(),
    })
}
