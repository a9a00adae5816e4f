//! Files that a command line names: what is wrong is said with the flag, the file and what to do.

use serde_json::Value;
use tidegate_testkit::{Proc, scratch};

use crate::rig::run;

/// Commands that take a file in place of FILE.
const COMMANDS: [(&str, &str); 6] = [
    ("run submit chat --input @FILE", "--input"),
    (
        "schedule put daily --cron @daily --capability chat --input @FILE",
        "--input",
    ),
    ("tool set shop --read item --http FILE", "--http"),
    ("pool publish FILE", "<FILE>"),
    ("run list --ca FILE", "--ca"),
    ("mock-provider --scenario FILE", "--scenario"),
];

/// Bad input: no file, a directory, and what is not of the form; nobody is asked before.
#[tokio::test]
async fn a_file_that_does_not_serve_is_named_with_its_flag() {
    let dir = scratch::directory("files");
    let broken = dir.join("broken");
    std::fs::write(&broken, "{\"text\": ").expect("a file");
    for (command, flag) in COMMANDS {
        for file in [&dir.join("missing"), &dir, &broken] {
            // What a PEM file holds is the client's to judge.
            if flag == "--ca" && *file == broken {
                continue;
            }
            let file = file.display().to_string();
            let words: Vec<String> = command
                .split(' ')
                .map(|word| word.replace("FILE", &file))
                .collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let proc = Proc::tidegate(&["--json"])
                .args(&words)
                .env("TIDEGATE_URL", "http://127.0.0.1:9")
                .env("TIDEGATE_KEY", "tg_any");
            let ended = run(proc).await.failed_with(2);
            let said: Value = serde_json::from_str(&ended.stderr).expect("one JSON document");
            let message = said["error"]["messages"][0].as_str().expect("a message");
            assert!(message.starts_with(flag), "{command}: {said}");
            assert!(message.contains(&file), "{command}: {said}");
            let remedy = said["error"]["remedy"].as_str().expect("a remedy");
            assert!(!remedy.contains("--help"), "{command}: {said}");
        }
    }
}
