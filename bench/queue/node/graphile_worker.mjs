// graphile-worker (Node) with the verbs of the benchmark's drivers: `setup`, `load RUNS TENANTS`, `submit RUNS CLIENTS`,
// `drain RUNS WORKERS`, `latency RATE SECONDS`; one line of JSON each. Draining uses its local queue and batched
// completion, 24 jobs at once; latency its usual mode, where each worker fetches for itself.
import { performance } from 'node:perf_hooks'
import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import pg from 'pg'

const PATIENCE_MS = 300_000
const [verb, ...numbers] = process.argv.slice(2)
const [first, second] = numbers.map(Number)
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 40 })
// The pool ends with the process; what breaks then is of no interest.
pool.on('error', () => {})
pool.on('connect', (client) => client.on('error', () => {}))
const logger = new Logger(() => (level, message) => { if (level === 'error') console.error(message) })
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const payload = (tenant, number, at = 0) => ({ tenant, number, at, text: 'x'.repeat(240) })
const rate = (runs, ms) => ({ runs, seconds: ms / 1000, rate: runs / ms * 1000 })

let started = 0
const waits = []
const noop = async (job) => {
  started++
  if (job.at > 0) waits.push(performance.now() - job.at)
}
const until = async (runs) => {
  const from = performance.now()
  while (started < runs) {
    if (performance.now() - from > PATIENCE_MS) throw new Error('not every job was started')
    await sleep(2)
  }
}
const start = (batched) => run({
  taskList: { noop },
  parsedCronItems: [],
  noHandleSignals: true,
  preset: {
    worker: {
      pgPool: pool,
      logger,
      maxPoolSize: 40,
      concurrentJobs: batched ? 24 : 10,
      ...(batched ? { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } : {}),
    },
  },
})
// A completed job is deleted, so an empty table is the end.
const settled = async () => {
  while ((await pool.query('SELECT FROM graphile_worker._private_jobs LIMIT 1')).rowCount > 0) await sleep(5)
}

const utils = await makeWorkerUtils({ pgPool: pool, preset: { worker: { logger } } })
const verbs = {
  async setup () {
    await utils.migrate()
    return {}
  },
  async load (runs, tenants) {
    const from = performance.now()
    let next = 0
    const loader = async () => {
      while (next < runs) {
        const size = Math.min(1000, runs - next)
        const base = next
        next += size
        await utils.addJobs(Array.from({ length: size }, (_, i) => (
          { identifier: 'noop', payload: payload((base + i) % tenants, base + i) })))
      }
    }
    await Promise.all(Array.from({ length: 4 }, loader))
    return rate(runs, performance.now() - from)
  },
  async submit (runs, clients) {
    const from = performance.now()
    await Promise.all(Array.from({ length: clients }, async () => {
      for (let i = 0; i < runs / clients; i++) await utils.addJob('noop', payload(0, i))
    }))
    return rate(runs, performance.now() - from)
  },
  async drain (runs) {
    const from = performance.now()
    await start(true)
    await until(runs)
    await settled()
    return rate(runs, performance.now() - from)
  },
  async latency (perSecond, seconds) {
    await start(false)
    await sleep(500)
    const from = performance.now()
    const total = perSecond * seconds
    for (let sent = 0; sent < total; await sleep(2)) {
      const due = Math.min(total, Math.floor((performance.now() - from) / 1000 * perSecond))
      while (sent < due) utils.addJob('noop', payload(0, sent++, performance.now()))
    }
    await until(total)
    const ms = waits.slice(perSecond).sort((a, b) => a - b)
    const at = (share) => ms[Math.floor((ms.length - 1) * share)]
    return { count: ms.length, p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1) }
  },
}
console.log(JSON.stringify(await verbs[verb](first, second)))
process.exit(0)
