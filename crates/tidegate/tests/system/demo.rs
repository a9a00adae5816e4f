//! `tidegate demo --once`: what `make demo ARGS=--once` runs.

use std::time::Duration;

use serde_json::Value;
use tidegate_testkit::{Proc, scratch};

use crate::rig::checkout;

/// Two tenants' turns, a wait with its reason, a takeover after `kill -9`; ends by itself with 0.
#[tokio::test]
async fn the_demo_shows_what_it_says_and_ends() {
    let dir = scratch::directory("demo");
    let mut running = Proc::tidegate(&["demo", "--once", "--json"])
        .args(["--data-dir".as_ref(), dir.as_os_str()])
        .current_dir(&checkout())
        .start();
    let status = running.wait(Duration::from_mins(6)).await;
    assert!(status.success(), "{}", running.output());
    let stdout = running.stdout();
    let lines: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let proved = |name: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["proved"] == name).collect()
    };
    let tenants: Vec<&str> = proved("turn")
        .iter()
        .filter_map(|turn| turn["facts"]["tenant"].as_str())
        .collect();
    assert_eq!(tenants, ["acme", "globex"]);
    assert!(stdout.contains("TENANT_FOREGROUND_CAP"));
    assert_eq!(proved("takeover").len(), 1);
    assert_eq!(proved("waited").len(), 1);
}
