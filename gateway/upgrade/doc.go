// Package upgrade replaces a process by another one that takes its sockets: the messages between the two, and the ends of both.
//
//	old                                       new
//	Start, Offer -> offer, socket ..., end -> Inherit
//	Prepared     <- prepared or refused    <- Prepared, Refuse
//	Serve        -> serve (with a table)
//	             <- serving                <- Serving
//	Commit       -> over                   -> Over
//
// Both have a socket of a pair (SOCK_SEQPACKET). A message is a JSON object, with the descriptors that it names as ancillary data
// (SCM_RIGHTS, unix(7)). The offer has the versions of the format that the old process knows, and prepared the one that the new
// process has chosen. Within a version fields may be added, which a reader that does not know them ignores; kinds of messages may
// not.
//
// The old process is the parent of the new one, and goes on if that ends, hangs or refuses before Commit. The package knows nothing of
// what the sockets serve.
package upgrade

import (
	"encoding/json"
	"os"
	"time"
)

// The versions of the format that this program knows.
const (
	leastVersion = 1
	mostVersion  = 1
)

// Program is the command line of a process.
type Program struct {
	Path string   `json:"path"`
	Args []string `json:"args"` // without the name
}

// Offer describes the old process to the new one.
type Offer struct {
	Least int `json:"least_version"`
	Most  int `json:"most_version"`

	PID        int     `json:"pid"`
	Build      string  `json:"build"`      // version of the program
	Generation uint8   `json:"generation"` // of the new process
	Program    Program `json:"program"`    // of the old one, for a rollback
	Executable bool    `json:"executable"` // the message has a descriptor of its file

	// State is read by the gateways alone. It may be long, and goes in a file in memory beside the offer.
	State json.RawMessage `json:"-"`
}

// Kind is the use of a socket.
type Kind string

// Kinds of sockets.
const (
	TCP     Kind = "tcp"  // a listening one, whose address it knows
	UDP     Kind = "udp"  // by its address; several processes have it
	Relay   Kind = "quic" // to the process of a generation, for packets of a UDP socket: "GENERATION ADDRESS"
	Control Kind = "control"
	Metrics Kind = "metrics"
	Pages   Kind = "pages"
	Session Kind = "bgp"  // of a session with a router: "ADDRESS NUMBER"
	Sync    Kind = "sync" // a listening one for the other gateway: by its address
	Role    Kind = "role" // a connected one of UDP, for the role: "ADDRESS PEER"
	Folder  Kind = "lock" // no socket: a file whose lock both processes have

	stateFile Kind = "state" // a file in memory with Offer.State
)

// Suspended is the part of a message serve about devices that the old process has closed. At is when, by CLOCK_MONOTONIC in nanoseconds;
// 0: it had none.
type Suspended struct {
	At       int64           `json:"at,omitempty"`
	Sessions json.RawMessage `json:"sessions,omitempty"` // with routers, that the old process has stopped
	Role     json.RawMessage `json:"role,omitempty"`     // of two gateways, that the old process has left
	Table    *os.File        `json:"-"`                  // a file in memory with the table of connections; nil: there is none
}

// Served is the body of a message serving.
type Served struct {
	Gap     time.Duration  `json:"gap_ns,omitempty"`  // without devices
	Entered int            `json:"entered,omitempty"` // connections of the table
	Lost    map[string]int `json:"lost,omitempty"`    // of it, by reason
}

// Refused is an error that the new process has reported. Code is the HTTP status by which the control socket reports it.
type Refused struct {
	Message string `json:"error"`
	Code    int    `json:"code"`
}

// Error implements error.
func (r *Refused) Error() string { return r.Message }
