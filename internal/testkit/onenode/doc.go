// Package onenode has no code: its tests run an L4 gateway and a host as two services of one node, beside the
// kernel's stack on the same interface, with one loop and with two.
package onenode
