// Package convert translates the configuration of another proxy to one of the gateway: nginx.conf, haproxy.cfg or a Caddyfile.
//
// Each language has a parser and a front, which fills the intermediate model: listeners, routes, rules, pools, and the place of
// each in the source. One writer prints the model as YAML, with the source lines as comments. The Report lists every
// directive of the source: translated, translated with a difference, left out, or without a counterpart that it would need.
//
// Nothing here runs or listens, and no file of the source is executed. Included files are read, within the bounds of source.go.
// What cannot be expressed must not open what the source has closed: a location whose content is left out answers 501, and a
// list of clients that cannot be expressed denies all.
package convert
