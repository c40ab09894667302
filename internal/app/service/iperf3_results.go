package service

import "time"

// results are exchanged by both sides at the end.
type results struct {
	CPUTotal    float64        `json:"cpu_util_total"` // per cent of one CPU
	CPUUser     float64        `json:"cpu_util_user"`
	CPUSystem   float64        `json:"cpu_util_system"`
	Retransmits int            `json:"sender_has_retransmits"` // 1, 0, or -1 of one that does not send
	Congestion  string         `json:"congestion_used,omitempty"`
	Streams     []streamResult `json:"streams"`
}

// streamResult is the part of a stream.
type streamResult struct {
	ID             int     `json:"id"`
	Bytes          int64   `json:"bytes"`
	Retransmits    int64   `json:"retransmits"` // -1: unknown
	Jitter         float64 `json:"jitter"`      // seconds
	Errors         int64   `json:"errors"`      // datagrams lost, from the start
	OmittedErrors  int64   `json:"omitted_errors"`
	Packets        int64   `json:"packets"`
	OmittedPackets int64   `json:"omitted_packets"`
	StartTime      float64 `json:"start_time"`
	EndTime        float64 `json:"end_time"` // seconds
}

// results sums the test up. Its streams have ended.
func (t *test) results() results {
	took := time.Since(t.begun).Seconds()
	now := cpuTime()
	user, system := 100*(now.user-t.cpu.user)/took, 100*(now.system-t.cpu.system)/took
	r := results{CPUTotal: user + system, CPUUser: user, CPUSystem: system, Retransmits: -1}
	for _, st := range t.streams {
		one := st.result(took - t.Omit)
		r.Streams = append(r.Streams, one)
		if st.sends && r.Retransmits < 1 {
			r.Retransmits = 0
			if one.Retransmits >= 0 {
				r.Retransmits = 1
			}
		}
		if st.infoOK {
			r.Congestion = st.info.Congestion
		}
	}
	return r
}

func (st *stream) result(took float64) streamResult {
	st.mu.Lock()
	defer st.mu.Unlock()
	r := streamResult{
		ID: st.id, Bytes: st.bytes, Retransmits: -1, Jitter: st.udp.jitter,
		Errors: st.udp.lost, OmittedErrors: st.ignored.lost,
		Packets: st.udp.packets, OmittedPackets: st.ignored.packets, EndTime: took,
	}
	if st.sends && st.infoOK {
		r.Retransmits = int64(st.info.Retransmits - st.base)
	}
	return r
}
