// Package route decides which rule a request matches: by host, path, method, fields, query, and by what the connection says
// about its client.
//
// Rules are those of the Gateway API's HTTPRoute, and so is their precedence. A Table is built once and then only read, by any
// number of goroutines; finding a rule takes no lock and allocates nothing. A rule with another path costs a request nothing:
// hosts and paths are looked up, and only rules of the same host and path are tried one after the other.
//
// The package does not parse requests: host and path come in the form that package semantics gives them.
package route
