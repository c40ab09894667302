// Package topk finds the routes, hosts, clients, paths and backends with the most requests, in bounded
// memory whatever clients send: the SpaceSaving sketch of Metwally, Agrawal and El Abbadi (2005).
//
// A Collection takes the records of requests from the loops for a time. While there is none, records are
// not made for it and cost nothing.
package topk
