package notify

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// status holds the fields of a thread in /proc.
type status struct {
	process, threads                  uint64
	private, shared, blocked, ignored uint64 // sets of signals: waiting for the thread, for the process
}

func readStatus(tid uint32) (status, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return status{}, err
	}
	return parseStatus(b)
}

func parseStatus(b []byte) (st status, err error) {
	for line := range bytes.Lines(b) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		base := 16
		var to *uint64
		switch string(key) {
		case "Tgid":
			to, base = &st.process, 10
		case "Threads":
			to, base = &st.threads, 10
		case "SigPnd":
			to = &st.private
		case "ShdPnd":
			to = &st.shared
		case "SigBlk":
			to = &st.blocked
		case "SigIgn":
			to = &st.ignored
		default:
			continue
		}
		if *to, err = strconv.ParseUint(string(bytes.TrimSpace(value)), base, 64); err != nil {
			return st, err
		}
	}
	return st, nil
}
