// Checks a call lease of Tidegate offline, by the published keys, and may narrow it further. See README.md.
import { readFileSync } from "node:fs";
import { AuthorizerBuilder, Biscuit, BlockBuilder, PublicKey, SignatureAlgorithm } from "@biscuit-auth/biscuit-wasm";

const SIZE_MAX = 8192; // a longer text is none of ours
const EXPOSURE_MS = 60_000; // a call lease is over by then; nothing that lives longer is taken

// What we know, and what is asked. The checks inside of the lease are run against it.
const QUESTION = `
    time({now}); resource({resource}); amount({amount}); calls({call});
    known_fence({generation}, {number}); known_lease_fence({leaseGeneration}, {leaseNumber});
    allow if tidegate_grant(1), grant($i, $r, $limit), resource($r), amount($n), $n <= $limit;
`;

interface PublishedKey {
  keyId: number;
  algorithm: "ed25519";
  publicKey: string;
  notBefore?: string;
  retireAt?: string;
}

interface Demand {
  resource: string;
  amount: number; // what was used under the lease before, too
  call: number; // from 1
  knownFence?: [number, number];
  knownLeaseFence?: [number, number];
}

/** The keys, from a server or from a file with its answer. A server's may be kept for a minute. */
async function published(place: string): Promise<PublishedKey[]> {
  const answer: { keys: PublishedKey[] } = place.startsWith("http")
    ? await (await fetch(new URL("/.well-known/tidegate-keys", place))).json()
    : JSON.parse(readFileSync(place, "utf8"));
  return answer.keys;
}

/** The lease, with its signatures checked by a key that is published and not retired. */
function read(keys: PublishedKey[], token: string, now: Date): Biscuit {
  if (token.length > SIZE_MAX) throw new Error("it is too long");
  let unknown: number | undefined;
  const key = (number: number): PublicKey => {
    const known = keys.find((key) => key.keyId === number && (!key.retireAt || now < new Date(key.retireAt)));
    if (!known) unknown = number; // the library dies of an exception in here: any other key fails, too
    return PublicKey.fromString((known ?? keys[0]).publicKey, SignatureAlgorithm.Ed25519);
  };
  try {
    return Biscuit.fromBase64WithProvider(token, key);
  } finally {
    if (unknown !== undefined) throw new Error(`key ${unknown} is not published: read the keys again, at most once a second`);
  }
}

/** Throws unless the lease allows it at a time. */
function allows(lease: Biscuit, demand: Demand, at: Date): void {
  const [generation, number] = demand.knownFence ?? [0, 0];
  const [leaseGeneration, leaseNumber] = demand.knownLeaseFence ?? [0, 0];
  const { resource, amount, call } = demand;
  const question = new AuthorizerBuilder();
  const facts = { now: { date: at.toISOString() }, resource, amount, call, generation, number, leaseGeneration, leaseNumber };
  question.addCodeWithParameters(QUESTION, facts, {});
  // Facts and rounds bound the work; the time is for a machine in need, where the first check also compiles.
  const limits = { max_facts: 200, max_iterations: 10, max_time_micro: 5_000_000 };
  question.buildAuthenticated(lease).authorizeWithLimits(limits);
}

/** Throws unless the text is a call lease that allows it now. */
function check(keys: PublishedKey[], token: string, demand: Demand): Biscuit {
  const now = new Date();
  const lease = read(keys, token, now);
  allows(lease, demand, now);
  try {
    allows(lease, demand, new Date(now.getTime() + EXPOSURE_MS + 1000));
  } catch {
    return lease; // that it ends in time is what is wanted
  }
  throw new Error("it lives for more than 60 s: it is no call lease");
}

const [place, resource, amount, call, narrowTo] = process.argv.slice(2);
if (!place || !resource || !amount || !call) {
  console.error("usage: verify_grant URL|FILE RESOURCE AMOUNT CALL [narrowed-to-CALLS] < LEASE");
  process.exit(1);
}
try {
  const token = readFileSync(0, "utf8").trim();
  const demand = { resource, amount: Number(amount), call: Number(call) };
  const lease = check(await published(place), token, demand);
  if (narrowTo) {
    const block = new BlockBuilder();
    block.addCodeWithParameters("check if calls($n), $n <= {calls}", { calls: Number(narrowTo) }, {});
    console.log(lease.appendBlock(block).toBase64());
  } else {
    console.log("good");
  }
} catch (why) {
  console.error("refused:", why instanceof Error ? why.message : JSON.stringify(why));
  process.exit(1);
}
