package script

import "github.com/millrace/millrace/tcp"

// Names of numbers, with Linux's values where anything is compared with them.
const (
	nonBlocking = 0x800 // O_NONBLOCK, SOCK_NONBLOCK

	msgOOB      = 0x1
	msgPeek     = 0x2
	msgDontWait = 0x40
	msgEOR      = 0x80
	msgMore     = 0x8000
	msgFastOpen = 0x20000000

	pollIn    = 0x1
	pollPri   = 0x2
	pollOut   = 0x4
	pollErr   = 0x8
	pollHup   = 0x10
	pollRdHup = 0x2000
)

var constants = map[string]int64{
	"AF_INET": 2, "AF_INET6": 10, "PF_INET": 2, "PF_INET6": 10, "IPPROTO_TCP": 6, "IPPROTO_IP": 0, "IPPROTO_IPV6": 41,
	"SOCK_STREAM": 1, "SOCK_NONBLOCK": nonBlocking, "SOCK_CLOEXEC": 0x80000,
	"O_RDWR": 2, "O_NONBLOCK": nonBlocking, "F_GETFL": 3, "F_SETFL": 4,
	"SHUT_RD": 0, "SHUT_WR": 1, "SHUT_RDWR": 2,
	"MSG_OOB": msgOOB, "MSG_PEEK": msgPeek, "MSG_DONTWAIT": msgDontWait, "MSG_EOR": msgEOR, "MSG_MORE": msgMore, "MSG_FASTOPEN": msgFastOpen, "MSG_NOSIGNAL": 0x4000,
	"POLLIN": pollIn, "POLLPRI": pollPri, "POLLOUT": pollOut, "POLLERR": pollErr, "POLLHUP": pollHup, "POLLRDHUP": pollRdHup,
	"SIOCINQ": 0x541b, "FIONREAD": 0x541b, "SIOCOUTQ": 0x5411, "SIOCATMARK": 0x8905, "SIOCOUTQNSD": 0x894b,
	"SOL_SOCKET": 1, "SOL_TCP": 6, "SOL_IP": 0, "SO_REUSEADDR": 2, "SO_REUSEPORT": 15, "SO_ERROR": 4, "SO_SNDBUF": 7, "SO_RCVBUF": 8,
	"SO_KEEPALIVE": 9, "SO_OOBINLINE": 10, "SO_LINGER": 13, "SO_MAX_PACING_RATE": 47, "IP_TTL": 2, "IP_TOS": 1, "IPV6_TCLASS": 67, "IP_MTU_DISCOVER": 10,
	"IP_PMTUDISC_DONT": 0, "IP_PMTUDISC_WANT": 1, "IP_PMTUDISC_DO": 2, "IP_PMTUDISC_PROBE": 3,
	"TCP_NODELAY": 1, "TCP_MAXSEG": 2, "TCP_CORK": 3, "TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 6,
	"TCP_INFO": 11, "TCP_QUICKACK": 12, "TCP_CONGESTION": 13, "TCP_USER_TIMEOUT": 18, "TCP_FASTOPEN": 23, "TCP_NOTSENT_LOWAT": 25, "TCP_DEFER_ACCEPT": 9, "TCP_FASTOPEN_CONNECT": 30,
	"TCP_CA_Open": 0, "TCP_CA_Disorder": 1, "TCP_CA_CWR": 2, "TCP_CA_Recovery": 3, "TCP_CA_Loss": 4, "TCP_INFINITE_SSTHRESH": 0x7fffffff,
	"TCPI_OPT_TIMESTAMPS": 1, "TCPI_OPT_SACK": 2, "TCPI_OPT_WSCALE": 4, "TCPI_OPT_ECN": 8, "TCPI_OPT_ECN_SEEN": 16, "TCPI_OPT_SYN_DATA": 32,
	"TCP_ESTABLISHED": 1, "TCP_SYN_SENT": 2, "TCP_SYN_RECV": 3, "TCP_FIN_WAIT1": 4, "TCP_FIN_WAIT2": 5,
	"TCP_TIME_WAIT": 6, "TCP_CLOSE": 7, "TCP_CLOSE_WAIT": 8, "TCP_LAST_ACK": 9, "TCP_LISTEN": 10, "TCP_CLOSING": 11,
}

// pathMTUModes are the values of IP_MTU_DISCOVER.
var pathMTUModes = map[int64]tcp.PathMTUMode{0: tcp.FragmentPackets, 1: tcp.FollowPathMTU, 2: tcp.FollowPathMTUOnly, 3: tcp.IgnorePathMTU}

// linuxState is the number that struct tcp_info has for a state.
var linuxState = map[tcp.State]int64{
	tcp.StateEstablished: 1, tcp.StateSynSent: 2, tcp.StateSynReceived: 3, tcp.StateFinWait1: 4, tcp.StateFinWait2: 5,
	tcp.StateTimeWait: 6, tcp.StateClosed: 7, tcp.StateCloseWait: 8, tcp.StateLastAck: 9, tcp.StateClosing: 11,
}

// errnos are the numbers of errors, for SO_ERROR.
var errnos = map[string]int64{
	"EPIPE": 32, "EAGAIN": 11, "EINPROGRESS": 115, "ECONNREFUSED": 111, "ECONNRESET": 104, "ETIMEDOUT": 110, "ECONNABORTED": 103,
	"EHOSTUNREACH": 113, "ENETUNREACH": 101, "ENOTCONN": 107, "EINVAL": 22, "EADDRINUSE": 98, "EISCONN": 106, "EBADF": 9, "ENOPROTOOPT": 92,
	"EALREADY": 114, "EPROTO": 71, "ENOBUFS": 105,
}

// errno names an error as the socket interface does; "" for nil.
func errno(err error) string {
	switch err {
	case nil:
		return ""
	case tcp.ErrRefused:
		return "ECONNREFUSED"
	case tcp.ErrUrgentLater:
		return "EAGAIN"
	case tcp.ErrReset:
		return "ECONNRESET"
	case tcp.ErrTimeout:
		return "ETIMEDOUT"
	case tcp.ErrUnreachable:
		return "ENETUNREACH"
	case tcp.ErrHost:
		return "EHOSTUNREACH"
	case tcp.ErrAborted:
		return "ECONNABORTED"
	case tcp.ErrAuth:
		return "EPROTO"
	case tcp.ErrInUse:
		return "EADDRINUSE"
	case tcp.ErrMemory, tcp.ErrTooMany:
		return "ENOBUFS"
	}
	return "EINVAL"
}
