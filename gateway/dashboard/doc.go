// Package dashboard serves a page that shows a running gateway, and what the page reads: the state as
// JSON, and the requests of the moment by routes, paths, clients and backends.
//
// The page is one file without assets of others. It is read-only, but for commands that come with the
// token of the configuration. Requests from pages of other sites are refused, and so are names of this
// machine that the configuration does not have: a name that an attacker's page has may resolve to any
// address (DNS rebinding).
package dashboard
