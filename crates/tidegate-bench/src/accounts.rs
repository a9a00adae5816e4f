//! CPU seconds from `/proc`.

use std::fs;

/// `USER_HZ`: what `/proc` counts in, on every Linux that this is run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// The fields of a `stat` file behind the command's name; 0 is the state.
fn fields(pid: &str) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

fn ticks(fields: &[String], range: std::ops::Range<usize>) -> f64 {
    range
        .filter_map(|index| fields.get(index)?.parse::<f64>().ok())
        .sum()
}

/// What a PostgreSQL has used: its first process, the children that ended, and those that live.
pub fn server_cpu_s(postmaster: u32) -> f64 {
    let postmaster = postmaster.to_string();
    let mut sum = fields(&postmaster).map_or(0.0, |own| ticks(&own, 11..15));
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name
            .to_str()
            .filter(|n| n.bytes().all(|b| b.is_ascii_digit()))
        else {
            continue;
        };
        if let Some(child) = fields(name).filter(|f| f.get(1) == Some(&postmaster)) {
            sum += ticks(&child, 11..13);
        }
    }
    sum / TICKS_PER_SECOND
}

/// What the children that this process has waited for used.
pub fn children_cpu_s() -> f64 {
    fields("self").map_or(0.0, |own| ticks(&own, 13..15)) / TICKS_PER_SECOND
}

/// What another process has used itself.
pub fn process_cpu_s(pid: u32) -> f64 {
    fields(&pid.to_string()).map_or(0.0, |own| ticks(&own, 11..13)) / TICKS_PER_SECOND
}

/// Resident memory of a process in MiB.
pub fn resident_mib(pid: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}

/// The processor, how many of it, and the memory of this machine.
pub fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let names: Vec<&str> = cpu
        .lines()
        .filter_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, name)| name)
        .collect();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: f64 = memory
        .lines()
        .find_map(|line| {
            line.strip_prefix("MemTotal:")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .unwrap_or(0.0);
    format!(
        "{} x {}, {:.0} GiB",
        names.len(),
        names.first().unwrap_or(&"unknown processor"),
        kib / 1024.0 / 1024.0
    )
}

/// How busy the machine was over the last minute.
pub fn load_average() -> f64 {
    fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(0.0)
}
