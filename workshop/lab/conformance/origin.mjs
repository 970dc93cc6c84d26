// node origin.mjs ENGINE: runs the suite's own server, at a free port of the loopback, and says where.
// ENGINE is the directory in the suite that has `server` and `client`.
import net from 'node:net'
import path from 'node:path'
import process from 'node:process'
import { pathToFileURL } from 'node:url'

// The suite's server listens at all addresses.
const listen = net.Server.prototype.listen
net.Server.prototype.listen = function (port) {
  return listen.call(this, { host: '127.0.0.1', port: Number(port) })
}

Object.assign(process.env, {
  npm_config_protocol: 'http',
  npm_config_port: '0',
  npm_config_pidfile: '/dev/null'
})
await import(pathToFileURL(path.join(path.resolve(process.argv[2]), 'server/server.mjs')))
