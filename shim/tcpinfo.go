package shim

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// States of TCP by Linux's numbers (include/net/tcp_states.h).
const (
	linuxEstablished = iota + 1
	linuxSynSent
	linuxSynReceived
	linuxFinWait1
	linuxFinWait2
	linuxTimeWait
	linuxClose
	linuxCloseWait
	linuxLastAck
	linuxListen
	linuxClosing
)

// Bits of tcpi_options.
const (
	infoTimestamps = 1
	infoSACK       = 2
	infoWscale     = 4
	infoECN        = 8
)

// getInfo is TCP_INFO: struct tcp_info as Linux lays it out. Counts of packets are computed from bytes where the stack
// counts those.
func getInfo(k *sock, _ optionName, b []byte) ([]byte, error) {
	var out unix.TCPInfo
	switch conn := k.connection(); {
	case conn != nil:
		i, err := conn.Info()
		if err != nil {
			return nil, bare(err)
		}
		fillInfo(&out, &i)
	case k.current() == paired:
		pairInfo(&out, k.asked)
	case k.current() == connecting:
		out.State = linuxSynSent
	case k.current() == listening:
		out.State = linuxListen
	default:
		out.State = linuxClose
	}
	return append(b, unsafe.Slice((*byte)(unsafe.Pointer(&out)), unsafe.Sizeof(out))...), nil
}

func fillInfo(out *unix.TCPInfo, i *socket.TCPInfo) {
	segment := uint64(max(i.MSS, 1))
	segments := func(bytes uint64) uint32 { return uint32((bytes + segment - 1) / segment) }
	us := func(d time.Duration) uint32 { return uint32(d / time.Microsecond) }
	ms := func(d time.Duration) uint32 { return uint32(max(d, 0) / time.Millisecond) }
	out.State, out.Ca_state = linuxState(i.State.String()), uint8(i.Recovery)
	out.Retransmits, out.Backoff, out.Probes = uint8(i.Backoff), uint8(i.Backoff), uint8(i.Probes)
	out.Options = infoBits(i)
	setScales(out, i.SendScale, i.ReceiveScale)
	out.Rto, out.Ato = us(i.RTO), us(i.AckDelay)
	out.Snd_mss, out.Rcv_mss, out.Advmss = uint32(i.MSS), uint32(i.ReceiveMSS), uint32(i.AnnouncedMSS)
	out.Unacked, out.Sacked, out.Lost = segments(i.InFlight+i.Sacked+i.Lost), segments(i.Sacked), segments(i.Lost)
	out.Last_data_sent, out.Last_data_recv, out.Last_ack_recv = ms(i.LastDataSent), ms(i.LastDataReceived), ms(i.LastAckReceived)
	out.Pmtu, out.Rcv_ssthresh = uint32(i.PathMTU), i.ReceiveWindow
	out.Rtt, out.Rttvar, out.Min_rtt = us(i.RTT), us(i.RTTVar), us(i.MinRTT)
	out.Snd_cwnd, out.Snd_ssthresh = segments(i.Cwnd), segments(min(i.Ssthresh, 1<<31))
	out.Reordering, out.Reord_seen = max(i.Reordering, 3), i.Reorderings
	out.Rcv_space, out.Total_retrans = uint32(i.ReceiveBuffer), uint32(i.Retransmits)
	out.Pacing_rate, out.Max_pacing_rate = rate(i.Pacing), rate(i.MaxPacing)
	out.Bytes_acked, out.Bytes_received = i.BytesAcked, i.BytesReceived
	out.Bytes_sent, out.Bytes_retrans = i.BytesSent, i.BytesRetransmitted
	out.Segs_in, out.Segs_out, out.Data_segs_in, out.Data_segs_out = i.SegmentsIn, i.SegmentsOut, i.DataSegmentsIn, i.DataSegmentsOut
	out.Notsent_bytes, out.Delivery_rate = uint32(i.Unsent), i.DeliveryRate
	out.Busy_time, out.Rwnd_limited, out.Sndbuf_limited = uint64(us(i.Busy)), uint64(us(i.WindowLimited)), uint64(us(i.BufferLimited))
	out.Dsack_dups, out.Rcv_ooopack = i.Duplicates, i.OutOfOrder
	out.Snd_wnd, out.Rcv_wnd = i.SendWindow, i.ReceiveWindow
	out.Delivered_ce, out.Received_ce = i.DeliveredCE, i.CE
	out.Total_rto, out.Total_rto_recoveries, out.Total_rto_time = uint16(i.Timeouts), uint16(i.TimeoutSeries), ms(i.TimeoutTime)
}

// rate returns a rate as Linux has it: no limit is all ones.
func rate(bytes uint64) uint64 {
	if bytes == 0 {
		return ^uint64(0)
	}
	return bytes
}

func infoBits(i *socket.TCPInfo) (bits uint8) {
	for bit, on := range map[uint8]bool{
		infoTimestamps: i.Timestamps, infoSACK: i.SACK, infoWscale: i.SendScale|i.ReceiveScale != 0, infoECN: i.ECN || i.AccECN,
	} {
		if on {
			bits |= bit
		}
	}
	return bits
}

// setScales sets tcpi_snd_wscale and tcpi_rcv_wscale, two bit fields of 4 bits in the byte behind tcpi_options.
func setScales(out *unix.TCPInfo, snd, rcv uint8) {
	at := unsafe.Offsetof(out.Options) + 1
	unsafe.Slice((*byte)(unsafe.Pointer(out)), unsafe.Sizeof(*out))[at] = snd&15 | rcv<<4
}

// linuxStates are the numbers of the states that RFC 9293 names.
var linuxStates = map[string]uint8{
	"ESTABLISHED": linuxEstablished, "SYN-SENT": linuxSynSent, "SYN-RECEIVED": linuxSynReceived, "FIN-WAIT-1": linuxFinWait1,
	"FIN-WAIT-2": linuxFinWait2, "TIME-WAIT": linuxTimeWait, "CLOSED": linuxClose, "CLOSE-WAIT": linuxCloseWait,
	"LAST-ACK": linuxLastAck, "LISTEN": linuxListen, "CLOSING": linuxClosing,
}

func linuxState(name string) uint8 { return linuxStates[name] }
