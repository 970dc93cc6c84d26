// Writes the tests of the package http-cache-tests as JSON, one test a line:
//   npm pack http-cache-tests@0.4.5 && tar xzf http-cache-tests-0.4.5.tgz
//   node export.mjs package/tests/index.mjs > suite.json
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const suites = (await import(pathToFileURL(path.resolve(process.argv[2])))).default
const lines = []
for (const suite of suites) {
  for (const { description, spec_anchors: anchors, ...test } of suite.tests) {
    lines.push(JSON.stringify({ suite: suite.id, ...test }))
  }
}
process.stdout.write(`[\n${lines.join(',\n')}\n]\n`)
