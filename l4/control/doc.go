// Package control is the control side of the L4 load balancer. It builds the snapshots that the handlers
// of l4/datapath decide by, out of the configuration (gateway/config), health checks
// (gateway/health) and next hops (node/nexthop), and publishes each by an atomic pointer.
//
// A Gateway owns what packets do not: the numbers of services and backends, which are reused only once
// no loop refers to them (l4/datapath/retire.go), so that a reload keeps every flow; states, slow start and drain of backends; ejections; what a reload
// changes; status and metrics. Nothing here is on a packet's path.
package control
