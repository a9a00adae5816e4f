use proptest::prelude::*;
use tidegate_model::run::QuotaBucket::{Background, Foreground, Uncounted};

use super::*;
use crate::estimates::FIRST_COST;

fn lane(bucket: QuotaBucket, tenant: &str, class: i32) -> LaneView {
    LaneView {
        bucket,
        of_background: false,
        tenant: tenant.parse().unwrap(),
        class,
        weight: 1,
        running: 0,
        cap: match bucket {
            Foreground => Some(2),
            Background => Some(1),
            Uncounted => None,
        },
        head_rank: 1,
        head_urgency: 0,
        head_position: i64::from(class),
        head_created_ms: i64::from(class),
        next_created_ms: Vec::new(),
        queued_hint: i64::MAX,
        pass: 0,
        cost: FIRST_COST,
    }
}

fn takes(lanes: &[LaneView], asks: &[Ask]) -> Vec<(String, i32, u32)> {
    asks.iter()
        .map(|ask| {
            let lane = &lanes[ask.lane];
            (lane.tenant.to_string(), lane.class, ask.take)
        })
        .collect()
}

fn expect(lanes: &[LaneView], want: u32, expected: &[(&str, i32, u32)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(tenant, class, take)| ((*tenant).to_owned(), *class, *take))
        .collect();
    assert_eq!(takes(lanes, &plan(lanes, want, want, true)), expected);
}

/// R3.3: fewest running ÷ weight first.
#[test]
fn the_tenant_with_fewest_running_by_weight_comes_first() {
    let mut lanes = vec![
        lane(Uncounted, "acme", 1),
        lane(Uncounted, "globex", 2),
        lane(Uncounted, "initech", 3),
    ];
    lanes[0].running = 3;
    lanes[1].running = 5;
    lanes[1].weight = 4;
    lanes[2].running = 2;
    // Shares of 3, 1.25 and 2: globex up to 2, where the smaller pass decides, then globex again.
    expect(&lanes, 1, &[("globex", 2, 1)]);
    expect(&lanes, 6, &[("globex", 2, 5), ("initech", 3, 1)]);
}

/// R3.3: with equal running the smaller pass, then the older head.
#[test]
fn ties_go_to_the_smaller_pass_then_to_the_older_head() {
    let mut lanes = vec![
        lane(Foreground, "acme", 1),
        lane(Foreground, "globex", 2),
        lane(Foreground, "initech", 3),
    ];
    expect(&lanes, 2, &[("acme", 1, 1), ("globex", 2, 1)]);
    lanes[0].pass = 10;
    lanes[2].head_created_ms = 0;
    expect(&lanes, 2, &[("initech", 3, 1), ("globex", 2, 1)]);
}

/// R3.3: between a foreground and an uncounted head the smaller pass, foreground on a tie.
#[test]
fn foreground_and_uncounted_heads_are_ordered_by_pass() {
    let mut lanes = vec![lane(Uncounted, "acme", 1), lane(Foreground, "globex", 2)];
    lanes[1].running = 1;
    expect(&lanes, 1, &[("globex", 2, 1)]);
    lanes[1].pass = 1;
    expect(&lanes, 1, &[("acme", 1, 1)]);
    lanes[1].pass = 0;
    // Each run given is charged, so that they take turns until the cap is reached.
    expect(&lanes, 5, &[("globex", 2, 1), ("acme", 1, 4)]);
}

/// R3.3, R3.4: a cap bounds what is asked, and a full tenant is not asked at all.
#[test]
fn full_tenants_are_left_alone() {
    let mut lanes = vec![
        lane(Foreground, "acme", 1),
        lane(Foreground, "globex", 2),
        lane(Background, "acme", 3),
    ];
    lanes[0].running = 2;
    lanes[2].running = 1;
    expect(&lanes, 10, &[("globex", 2, 2)]);
}

/// R3.3: under a cap one lane per tenant, the one whose head has the higher priority, then the older one.
#[test]
fn under_a_cap_one_lane_per_tenant_is_asked() {
    let mut lanes = vec![
        lane(Foreground, "acme", 1),
        lane(Foreground, "acme", 2),
        lane(Foreground, "acme", 3),
    ];
    expect(&lanes, 9, &[("acme", 1, 2)]);
    lanes[1].head_urgency = -5;
    expect(&lanes, 9, &[("acme", 2, 2)]);
    lanes[2].head_rank = 0;
    expect(&lanes, 9, &[("acme", 3, 2)]);
}

#[test]
fn uncapped_lanes_of_one_tenant_take_turns() {
    let lanes = vec![lane(Uncounted, "acme", 1), lane(Uncounted, "acme", 2)];
    expect(&lanes, 5, &[("acme", 1, 3), ("acme", 2, 2)]);
}

/// R3.6: background gets no more than the instance allows, and nothing when it is switched off there.
#[test]
fn background_stays_within_its_own_share() {
    let lanes: Vec<_> = ["acme", "globex", "initech"]
        .iter()
        .zip(1..)
        .map(|(tenant, class)| lane(Background, tenant, class))
        .collect();
    assert_eq!(plan(&lanes, 8, 0, true), []);
    assert_eq!(
        takes(&lanes, &plan(&lanes, 8, 2, true)),
        [("acme".to_owned(), 1, 1), ("globex".to_owned(), 2, 1)]
    );
}

/// R3.6: descendants of background roots share what the instance allows for background; other children do not.
#[test]
fn descendants_of_background_roots_count_as_background() {
    let descendants = LaneView {
        of_background: true,
        ..lane(Uncounted, "acme", 1)
    };
    let lanes = [
        descendants,
        lane(Background, "globex", 2),
        LaneView {
            queued_hint: 4,
            ..lane(Uncounted, "acme", 3)
        },
    ];
    assert_eq!(
        takes(&lanes, &plan(&lanes, 6, 0, true)),
        [("acme".to_owned(), 3, 4)]
    );
    let asks = plan(&lanes, 6, 2, true);
    let background: u32 = asks
        .iter()
        .filter(|ask| ask.lane < 2)
        .map(|ask| ask.take)
        .sum();
    assert_eq!(
        (background, asks.iter().map(|ask| ask.take).sum::<u32>()),
        (2, 6)
    );
}

/// R3.3: fairness off is first come, first served, without a cap.
#[test]
fn without_fairness_the_oldest_goes_first() {
    let mut lanes = vec![
        lane(Foreground, "acme", 1),
        lane(Foreground, "globex", 2),
        lane(Background, "acme", 3),
    ];
    lanes[0].running = 9;
    lanes[0].pass = 99;
    lanes[0].head_created_ms = 10;
    lanes[0].next_created_ms = vec![20, 40, 60];
    lanes[1].head_created_ms = 30;
    lanes[1].next_created_ms = vec![50];
    lanes[1].queued_hint = 2;
    lanes[2].head_created_ms = 5;
    let asks = plan(&lanes, 6, 6, false);
    assert_eq!(
        takes(&lanes, &asks),
        [
            ("acme".to_owned(), 3, 1),
            ("acme".to_owned(), 1, 3),
            ("globex".to_owned(), 2, 2)
        ]
    );
    assert_eq!(
        asks.iter().map(|ask| ask.cap).collect::<Vec<_>>(),
        [Some(1), None, None]
    );
}

#[test]
fn a_pass_grows_by_cost_over_weight_and_never_wraps() {
    assert_eq!(charge(7, 0, 1), 7);
    assert_eq!(charge(0, 10, 1), 4 * charge(0, 10, 4));
    assert!(charge(5, 1, u32::MAX) > 5);
    assert_eq!(charge(u64::MAX, u64::MAX, 1), u64::MAX);
    assert_eq!(charge(0, 10, 0), charge(0, 10, 1));
}

fn lanes() -> impl Strategy<Value = Vec<LaneView>> {
    let tenant = (0_u8..6, 1_u32..5, 0_u64..3);
    let tenants = prop::collection::vec(tenant, 6);
    let running = prop::collection::vec(0_i64..5, 24);
    let row = (0_usize..4, 0_usize..6, 0_i64..20, 0_i16..2, -2_i16..3);
    (tenants, running, prop::collection::vec(row, 0..24)).prop_map(|(tenants, running, rows)| {
        rows.into_iter()
            .enumerate()
            .map(|(index, (place, tenant, queued, rank, urgency))| {
                let bucket = [Foreground, Uncounted, Background, Uncounted][place];
                let class = i32::try_from(index).unwrap();
                LaneView {
                    of_background: place == 3,
                    weight: tenants[tenant].1,
                    pass: tenants[tenant].2 * 1_000_000,
                    running: running[place * 6 + tenant],
                    queued_hint: queued,
                    head_rank: rank,
                    head_urgency: urgency,
                    ..lane(bucket, &format!("t{tenant}"), class)
                }
            })
            .collect()
    })
}

proptest! {
    /// R3.3, R3.4: whatever the lanes, a plan stays within what was wanted, queued and free.
    #[test]
    fn plans_stay_within_every_bound(
        lanes in lanes(), want in 0_u32..40, background in 0_u32..5, fair: bool,
    ) {
        let asks = plan(&lanes, want, background, fair);
        let mut by_group: HashMap<(QuotaBucket, TenantId), (i64, usize)> = HashMap::new();
        let (mut total, mut total_background) = (0, 0);
        for ask in &asks {
            let lane = &lanes[ask.lane];
            prop_assert!(ask.take > 0 && i64::from(ask.take) <= lane.queued_hint);
            prop_assert_eq!(ask.cap, buckets::effective_cap(lane.bucket, lane.cap, fair));
            total += ask.take;
            if place(lane) >= BACKGROUND {
                total_background += ask.take;
            }
            let group = by_group.entry((lane.bucket, lane.tenant.clone())).or_default();
            group.0 += i64::from(ask.take);
            group.1 += 1;
            if let Some(cap) = ask.cap {
                prop_assert!(lane.running + group.0 <= cap, "room");
                prop_assert_eq!(group.1, 1, "one lane under a cap");
            }
        }
        prop_assert!(total <= want && total_background <= background);
        // Nothing is left idle: a lane that was not asked for all it has had no room, no share or a rival.
        if total < want {
            for (index, lane) in lanes.iter().enumerate() {
                let taken = asks.iter().find(|ask| ask.lane == index).map_or(0, |ask| ask.take);
                let capped = buckets::effective_cap(lane.bucket, lane.cap, fair).is_some();
                let background_spent = place(lane) >= BACKGROUND && total_background == background;
                if !capped && !background_spent {
                    prop_assert_eq!(i64::from(taken), lane.queued_hint, "idle lane {}", index);
                }
            }
        }
        let mut seen = asks.iter().map(|ask| ask.lane).collect::<Vec<_>>();
        seen.sort_unstable();
        seen.dedup();
        prop_assert_eq!(seen.len(), asks.len(), "one ask per lane");
    }

    /// R3.3: the heap gives what a plain search for the next tenant gives, one run at a time.
    #[test]
    fn the_plan_equals_choosing_one_run_at_a_time(lanes in lanes(), want in 0_u32..30, background in 0_u32..5) {
        let asks = plan(&lanes, want, background, true);
        prop_assert_eq!(asks, plain(&lanes, want, background));
    }

    /// R3.8: planning on the shortlist gives what planning on all lanes gives.
    #[test]
    fn the_shortlist_holds_all_that_a_plan_reaches(
        lanes in lanes(), want in 0_u32..12, background in 0_u32..5, fair: bool,
    ) {
        let (groups, members) = groups(&lanes, fair);
        let mut kept: Vec<usize> = shortlist(&groups, want, fair)
            .into_iter()
            .flat_map(|group| members[group].clone())
            .collect();
        kept.sort_unstable();
        let few: Vec<LaneView> = kept.iter().map(|index| lanes[*index].clone()).collect();
        let by_few = plan(&few, want, background, fair);
        prop_assert_eq!(takes(&few, &by_few), takes(&lanes, &plan(&lanes, want, background, fair)));
    }

    /// R3.8: a tenant with nothing running is passed over at most once by each other tenant.
    #[test]
    fn an_idle_tenant_is_passed_over_at_most_once_by_each_other(rivals in 1_usize..12, want in 1_u32..40) {
        let mut lanes: Vec<_> = (0..rivals)
            .map(|n| lane(Uncounted, &format!("rival{n}"), i32::try_from(n).unwrap()))
            .collect();
        let mut idle = lane(Uncounted, "idle", 1_000);
        idle.queued_hint = 1;
        lanes.push(idle);
        let asks = plan(&lanes, want, want, true);
        let asked = asks.iter().any(|ask| ask.lane == rivals);
        prop_assert_eq!(asked, want as usize > rivals);
    }
}

/// The lanes by tenant and place, each group by its first run.
fn groups(lanes: &[LaneView], fair: bool) -> (Vec<GroupHead>, Vec<Vec<usize>>) {
    let mut members: Vec<Vec<usize>> = Vec::new();
    for (index, lane) in lanes.iter().enumerate() {
        let same = |group: &&mut Vec<usize>| {
            let other = &lanes[group[0]];
            place(other) == place(lane) && other.tenant == lane.tenant
        };
        match members.iter_mut().find(same) {
            Some(group) => group.push(index),
            None => members.push(vec![index]),
        }
    }
    let heads = members.iter().map(|group| {
        let with_work = group.iter().filter(|index| lanes[**index].queued_hint > 0);
        let first = with_work.min_by_key(|index| {
            let lane = &lanes[**index];
            (
                lane.head_rank,
                lane.head_urgency,
                lane.head_position,
                **index,
            )
        });
        let lane = &lanes[*first.unwrap_or(&group[0])];
        GroupHead {
            bucket: lane.bucket,
            of_background: lane.of_background,
            running: lane.running,
            cap: if first.is_some() {
                buckets::effective_cap(lane.bucket, lane.cap, fair)
            } else {
                Some(0)
            },
            weight: lane.weight,
            pass: lane.pass,
            created_ms: lane.head_created_ms,
            position: lane.head_position,
        }
    });
    (heads.collect(), members)
}

/// The order of R3.3 written as plainly as it reads: quadratic, and only for comparison.
fn plain(lanes: &[LaneView], want: u32, want_background: u32) -> Vec<Ask> {
    let mut given = vec![0_u32; lanes.len()];
    let mut asks: Vec<Ask> = Vec::new();
    let sum = |given: &[u32], matches: &dyn Fn(&LaneView) -> bool| -> i64 {
        lanes
            .iter()
            .zip(given)
            .filter(|(lane, _)| matches(lane))
            .map(|(_, taken)| i64::from(*taken))
            .sum()
    };
    for _ in 0..want {
        let spent = sum(&given, &|lane| place(lane) >= BACKGROUND);
        let mut heads: Vec<(usize, i64, u64)> = Vec::new();
        for (index, lane) in lanes.iter().enumerate() {
            let group = |l: &LaneView| place(l) == place(lane) && l.tenant == lane.tenant;
            let cap = buckets::effective_cap(lane.bucket, lane.cap, true);
            let running = lane.running + sum(&given, &group);
            let rank_of = |i: usize| {
                let l = &lanes[i];
                let turns = if cap.is_some() { 0 } else { given[i] };
                (l.head_rank, l.head_urgency, turns, l.head_position, i)
            };
            let rivals =
                (0..lanes.len()).filter(|i| group(&lanes[*i]) && lanes[*i].queued_hint > 0);
            let rivals =
                rivals.filter(|i| cap.is_some() || i64::from(given[*i]) < lanes[*i].queued_hint);
            let first_of_tenant = rivals.min_by_key(|i| rank_of(*i)) == Some(index);
            let free = cap.is_none_or(|cap| running < cap);
            let left = i64::from(given[index]) < lane.queued_hint;
            let allowed = place(lane) < BACKGROUND || spent < i64::from(want_background);
            if first_of_tenant && free && left && allowed {
                let charges = sum(&given, &|l| l.tenant == lane.tenant);
                let pass =
                    (0..charges).fold(lane.pass, |pass, _| charge(pass, lane.cost, lane.weight));
                heads.push((index, running, pass));
            }
        }
        let next = (0..PLACES)
            .filter_map(|at| {
                heads
                    .iter()
                    .filter(|head| place(&lanes[head.0]) == at)
                    .min_by(|a, b| {
                        let (one, two) = (&lanes[a.0], &lanes[b.0]);
                        (a.1 * i64::from(two.weight))
                            .cmp(&(b.1 * i64::from(one.weight)))
                            .then(a.2.cmp(&b.2))
                            .then(one.head_created_ms.cmp(&two.head_created_ms))
                            .then(one.head_position.cmp(&two.head_position))
                    })
            })
            .min_by_key(|head| head.2);
        let Some(next) = next else {
            break;
        };
        given[next.0] += 1;
        match asks.iter_mut().find(|ask| ask.lane == next.0) {
            Some(ask) => ask.take += 1,
            None => asks.push(Ask {
                lane: next.0,
                take: 1,
                cap: buckets::effective_cap(lanes[next.0].bucket, lanes[next.0].cap, true),
            }),
        }
    }
    asks
}
