// Package rdmaperf measures RDMA between two hosts (millrace rdma ping, bw, lat), and serves the other side (rdma serve). The figures are those
// of perftest: bandwidth by the wait for completions of many requests, latency by one request at a time.
package rdmaperf
