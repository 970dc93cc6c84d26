// node client.mjs ENGINE TESTS BASE shared|private [ID]: runs the suite's own runner against the cache at BASE, and prints
// what it found as JSON: for each test true, or the kind of failure and a message. With ID, runs this test alone, and
// prints its messages first.
import path from 'node:path'
import process from 'node:process'
import { pathToFileURL } from 'node:url'

const [engine, testsFile, base, place, id] = process.argv.slice(2)
const load = file => import(pathToFileURL(path.resolve(file)))
const { runTests, getResults } = await load(path.join(engine, 'client/runner.mjs'))
let tests = (await load(testsFile)).default
if (id !== undefined) {
  tests = [{ tests: tests.flatMap(suite => suite.tests).filter(test => test.id === id) }]
  tests[0].tests.forEach(test => { test.dump = true })
}

// Node has no cache, and yet its fetch behaves as if it were a browser that passes its cache by: it adds no-cache to
// requests with conditions, and to all of them if the suite says no-store. With force-cache it adds nothing. A test's
// own no-cache stands: for that, a browser asks its cache with max-age=0, and so does Node.
const fetchOfNode = globalThis.fetch
const plainFetch = (url, init = {}) => fetchOfNode(url, {
  ...init,
  cache: init.cache === 'no-cache' ? 'no-cache' : 'force-cache'
})
globalThis.fetch = plainFetch

const isBrowser = place === 'private'
// Version 0.4.5 is given a fetch, later ones take the one that there is.
const takesFetch = runTests.length === 4
await (takesFetch ? runTests(tests, plainFetch, isBrowser, base) : runTests(tests, isBrowser, base))
// Pooled connections would keep this alive.
process.stdout.write(JSON.stringify(getResults()), () => process.exit())
