//! A flag for every setting that is no secret, made from the table.

use std::sync::LazyLock;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use tidegate_engine::settings::{Setting, table};

/// Settings given as flags: name and text.
#[derive(Debug, Clone, Default)]
pub struct SettingFlags(pub Vec<(String, String)>);

/// Flag and setting; clap wants texts that live as long as the program.
static FLAGS: LazyLock<Vec<(String, &'static Setting)>> = LazyLock::new(|| {
    table()
        .filter_map(|setting| Some((setting.flag()?, setting)))
        .collect()
});

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = FLAGS.iter().filter_map(|(_, setting)| {
            let text = matches.get_one::<String>(setting.name)?;
            Some((setting.name.to_owned(), text.clone()))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

impl Args for SettingFlags {
    fn augment_args(mut command: Command) -> Command {
        for (flag, setting) in FLAGS.iter() {
            command = command.arg(
                Arg::new(setting.name)
                    .long(flag.as_str())
                    .value_name("VALUE")
                    .action(ArgAction::Set)
                    .allow_hyphen_values(true)
                    .help(setting.meaning.trim_end_matches('.'))
                    .help_heading("Settings")
                    .hide_short_help(!SHOWN.contains(&setting.name)),
            );
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Another default than the table's, weaker than every source: used only where the environment and the flags say nothing.
pub fn with_default(mut flags: SettingFlags, name: &str, text: &str) -> SettingFlags {
    let env = table().find(|setting| setting.name == name);
    let said = flags.0.iter().any(|(given, _)| given == name)
        || env.is_some_and(|setting| std::env::var_os(setting.env).is_some());
    if !said {
        flags.0.push((name.to_owned(), text.to_owned()));
    }
    flags
}

/// Shown by `-h`; `--help` shows all.
const SHOWN: [&str; 5] = [
    "roles",
    "listen",
    "data_dir",
    "run_execution_concurrency",
    "log_format",
];
