#!/usr/bin/env node
// run.mjs --proxy BRISK_PROXY --private PRIVATE_CACHE --work DIR --out FILE [--suite DIR] [--only NAME]...
//
// Runs the public suite of cache tests, by its own server and its own runner, against brisk and other caches on this
// machine, one after the other, and writes all verdicts to FILE. The suite is a checkout of http-tests/cache-tests, or else
// the package http-cache-tests of npm. DIR/suite.json gets its tests.
//
// Each cache is started for this with an empty store, has a server of the suite of its own, listens on the loopback, and
// ends afterwards.
import { execFileSync, spawn } from 'node:child_process'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import process from 'node:process'
import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'

const PACKAGE = 'http-cache-tests@0.4.5'
// What is older has a fetch that the suite's client of interim responses cannot use.
const OLDEST_NODE = [20, 18]
const HERE = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname)
const START_SECONDS = 30
const RUN_SECONDS = 900

function die (text) {
  process.stderr.write(`workshop/lab/conformance: ${text}\n`)
  process.exit(2)
}

const say = text => process.stderr.write(`${text}\n`)

const { values: args } = parseArgs({
  options: {
    proxy: { type: 'string' },
    private: { type: 'string' },
    work: { type: 'string' },
    out: { type: 'string' },
    suite: { type: 'string' },
    only: { type: 'string', multiple: true }
  }
})
for (const name of ['proxy', 'private', 'work', 'out']) {
  if (args[name] === undefined) die(`--${name} is missing`)
}
if (fs.existsSync(args.out)) die(`${args.out} exists, and no raw run is overwritten`)
const [major, minor] = process.versions.node.split('.').map(Number)
if (major < OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor < OLDEST_NODE[1])) {
  die(`node is ${process.versions.node}, and the suite needs ${OLDEST_NODE.join('.')} or later`)
}
// Debian keeps servers there, and not all users look there.
process.env.PATH += ':/usr/sbin:/sbin'
// What the system says about proxies is not for the loopback.
for (const name of Object.keys(process.env)) {
  if (/^(https?|all|no)_proxy$/i.test(name)) delete process.env[name]
}

// The suite.

// Its engine and its tests, in a directory below DIR with the packages that it needs.
async function theSuite () {
  const root = path.resolve(args.work, 'suite')
  fs.rmSync(root, { recursive: true, force: true })
  fs.mkdirSync(root, { recursive: true })
  const from = args.suite === undefined ? unpacked() : path.resolve(args.suite)
  const said = JSON.parse(fs.readFileSync(path.join(from, 'package.json'), 'utf8'))
  if (said.name !== 'http-cache-tests') die(`${from} is no checkout of http-tests/cache-tests`)
  const suite = path.join(root, 'cache-tests')
  const isOld = !fs.existsSync(path.join(from, 'test-engine'))
  for (const part of isOld ? ['client', 'server', 'lib', 'tests'] : ['test-engine', 'tests']) {
    fs.cpSync(path.join(from, part), path.join(suite, part), { recursive: true })
  }
  const undici = said.dependencies.undici
  if (undici !== undefined) {
    npm(root, 'install', '--no-audit', '--no-fund', '--ignore-scripts', '--prefix', root, `undici@${undici}`)
  }
  const tests = path.join(suite, 'tests/index.mjs')
  const all = (await import(pathToFileURL(tests))).default.flatMap(group => group.tests)
  const json = execFileSync(process.execPath, [path.join(HERE, '../../../keep/brisk-http/tests/cache-tests/export.mjs'), tests])
  fs.writeFileSync(path.join(args.work, 'suite.json'), json)
  return { name: suiteName(from, said), engine: isOld ? suite : path.join(suite, 'test-engine'), tests, all }
}

// The package of npm.
function unpacked () {
  const root = path.resolve(args.work, 'package')
  fs.rmSync(root, { recursive: true, force: true })
  fs.mkdirSync(root, { recursive: true })
  const file = npm(root, 'pack', '--silent', PACKAGE).trim()
  execFileSync('tar', ['xzf', file], { cwd: root })
  return path.join(root, 'package')
}

function npm (directory, ...rest) {
  return execFileSync('npm', rest, { cwd: directory, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] })
}

// The commit of a checkout, or the version of a package.
function suiteName (from, said) {
  if (args.suite === undefined) return `${said.name} ${said.version}`
  try {
    const top = execFileSync('git', ['-C', from, 'rev-parse', '--show-toplevel', 'HEAD'], { encoding: 'utf8', stdio: 'pipe' })
    const [directory, commit] = top.trim().split('\n')
    if (fs.realpathSync(directory) === fs.realpathSync(from)) return `cache-tests ${commit}`
  } catch {}
  return 'cache-tests, of an unknown commit'
}

// Processes, which end with this one.

const running = new Set()

// Starts a program in a directory of its own. What it says is kept.
function start (directory, command, ...rest) {
  const child = spawn(command, rest, { cwd: directory, stdio: ['ignore', 'pipe', 'pipe'] })
  child.said = ''
  child.printed = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', piece => { child.said += piece })
  }
  child.stdout.on('data', piece => { child.printed += piece })
  child.ended = new Promise(resolve => {
    child.once('error', e => { child.said += e.message; resolve(1) })
    child.once('close', (code, signal) => resolve(code ?? signal))
  })
  child.ended.then(how => { running.delete(child); child.how = how })
  running.add(child)
  return child
}

async function end (child) {
  child.kill('SIGTERM')
  const ended = await Promise.race([child.ended.then(() => true), sleep(10000, false, { ref: false })])
  if (!ended) {
    child.kill('SIGKILL')
    await child.ended
  }
}

process.on('exit', () => { for (const child of running) child.kill('SIGKILL') })
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(1))

// Waits until `holds`, or fails with what the program has said.
async function until (what, child, holds) {
  for (let tries = 0; tries < START_SECONDS * 20; tries++) {
    if (child.how !== undefined) break
    if (await holds()) return
    await sleep(50)
  }
  die(`${what} does not start; it said:\n${child.said}`)
}

function answers (port) {
  return new Promise(resolve => {
    const socket = net.connect({ host: '127.0.0.1', port })
    socket.once('connect', () => { socket.destroy(); resolve(true) })
    socket.once('error', () => resolve(false))
  })
}

function freePort () {
  return new Promise(resolve => {
    const server = net.createServer().listen({ host: '127.0.0.1', port: 0 }, () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })
}

// The caches. `start` gets a directory, the port of the cache and that of the origin.

// A configuration of this directory, filled in.
function configured (file, directory, port, origin) {
  const text = fs.readFileSync(path.join(HERE, file), 'utf8')
  const filled = path.join(directory, file)
  fs.writeFileSync(filled, text.replace(/\bDIR\b/g, directory).replace(/\bPORT\b/g, port).replace(/\bORIGIN\b/g, origin))
  return filled
}

function versionOf (command, ...rest) {
  const said = execFileSync('sh', ['-c', '"$@" 2>&1', 'sh', command, ...rest], { encoding: 'utf8' })
  return said.match(/[0-9]+\.[0-9]+(\.[0-9]+)?/)?.[0] ?? die(`${command} does not tell its version`)
}

const proxy = path.resolve(args.proxy)
const privateCache = path.resolve(args.private)
const CACHES = [
  {
    name: 'brisk proxy',
    place: 'shared',
    version: () => versionOf(proxy, '--version'),
    start: (directory, port, origin) => start(directory, proxy, '--listen', `127.0.0.1:${port}`,
      '--map', `/=http://127.0.0.1:${origin}`, '--cache', path.join(directory, 'cache'))
  },
  {
    name: 'nginx',
    place: 'shared',
    version: () => versionOf('nginx', '-v'),
    start: (directory, port, origin) => start(directory, 'nginx', '-p', directory, '-e', 'stderr',
      '-c', configured('nginx.conf', directory, port, origin))
  },
  {
    name: 'Squid',
    place: 'shared',
    version: () => versionOf('squid', '-v'),
    start: (directory, port, origin) => start(directory, 'squid', '-N', '-f',
      configured('squid.conf', directory, port, origin))
  },
  {
    name: 'Varnish',
    place: 'shared',
    version: () => versionOf('varnishd', '-V'),
    // Without a lifetime of their own, answers would be fresh for two minutes, and stale ones would be used for 10 seconds
    // although nothing allows it. Expired answers are kept, so that they can be validated.
    start: (directory, port, origin) => start(directory, 'varnishd', '-F', '-n', path.join(directory, 'varnish'),
      '-j', 'none', '-a', `127.0.0.1:${port}`, '-f', configured('varnish.vcl', directory, port, origin),
      '-s', 'malloc,256m', '-p', 'default_ttl=0', '-p', 'default_grace=0', '-p', 'default_keep=3600')
  },
  { name: 'no cache', place: 'shared' },
  {
    name: 'brisk private',
    place: 'private',
    version: () => versionOf(proxy, '--version'),
    start: (directory, port, origin) => start(directory, privateCache, `127.0.0.1:${port}`, `127.0.0.1:${origin}`,
      path.join(directory, 'cache'))
  },
  { name: 'no cache', place: 'private' }
]

async function verdicts (suite, cache) {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'brisk-conformance-'))
  // Servers that change their user must get in.
  fs.chmodSync(directory, 0o777)
  try {
    const server = start(directory, process.execPath, path.join(HERE, 'origin.mjs'), suite.engine)
    const listening = /^Listening on http:\/\/127\.0\.0\.1:([0-9]+)\//m
    await until("the suite's server", server, () => listening.test(server.said))
    const origin = Number(server.said.match(listening)[1])
    let port = origin
    let child
    if (cache.start !== undefined) {
      port = await freePort()
      child = cache.start(directory, port, origin)
      await until(cache.name, child, () => answers(port))
    }
    const client = start(directory, process.execPath, path.join(HERE, 'client.mjs'), suite.engine, suite.tests,
      `http://127.0.0.1:${port}`, cache.place)
    const timer = setTimeout(() => client.kill('SIGKILL'), RUN_SECONDS * 1000)
    const how = await client.ended
    clearTimeout(timer)
    if (how !== 0) die(`the suite's runner ended with ${how}; it said:\n${client.said}`)
    if (child?.how !== undefined) die(`${cache.name} ended with ${child.how}; it said:\n${child.said}`)
    if (child !== undefined) await end(child)
    await end(server)
    // The suite may print before.
    return JSON.parse(client.printed.slice(client.printed.lastIndexOf('\n') + 1))
  } finally {
    fs.rmSync(directory, { recursive: true, force: true })
  }
}

const suite = await theSuite()
const wanted = CACHES.filter(({ name, place }) => args.only?.includes(`${name}, ${place}`) ?? true)
for (const name of args.only ?? []) {
  if (!CACHES.some(cache => name === `${cache.name}, ${cache.place}`)) die(`there is no cache ${name}`)
}
const caches = []
for (const cache of wanted) {
  say(`${suite.name}: ${cache.name}, ${cache.place}`)
  const version = cache.version?.() ?? null
  caches.push({ name: cache.name, place: cache.place, version, verdicts: await verdicts(suite, cache) })
}
const needed = ({ id, kind, depends_on: dependsOn, browser_only: only, browser_skip: skip, cdn_only: cdn }) =>
  ({ id, kind, depends_on: dependsOn, browser_only: only, browser_skip: skip, cdn_only: cdn })
const run = {
  format: 'brisk-conformance/1',
  suite: suite.name,
  time: new Date().toISOString(),
  system: `${os.type()} ${os.release()}, ${os.cpus()[0]?.model}, ${os.cpus().length} processors`,
  node: process.versions.node
}
// One test a line.
const lines = (open, entries, close) => `${open}\n${entries.join(',\n')}\n${close}`
const head = JSON.stringify(run).slice(1, -1)
const testLines = lines('[', suite.all.map(test => JSON.stringify(needed(test))), ']')
const cacheTexts = caches.map(({ verdicts, ...rest }) => {
  const each = Object.entries(verdicts).map(([id, verdict]) => `${JSON.stringify(id)}:${JSON.stringify(verdict)}`)
  return `{${JSON.stringify(rest).slice(1, -1)},"verdicts":${lines('{', each, '}')}}`
})
fs.mkdirSync(path.dirname(path.resolve(args.out)), { recursive: true })
fs.writeFileSync(args.out, `{${head},\n"tests":${testLines},\n"caches":[${cacheTexts.join(',\n')}]}\n`, { flag: 'wx' })
say(`${args.out}: ${caches.length} caches`)
