package appid

// Protocol is an application protocol.
type Protocol uint8

// The protocols.
const (
	Unknown Protocol = iota
	HTTP
	HTTPConnect
	HTTP2
	TLS
	QUIC
	DTLS
	RTSP
	SOAP
	XMPP
	JSONRPC
	Stratum
	RTMP
	SOCKS
	DNS
	MDNS
	LLMNR
	DNSCrypt
	NetBIOS
	SMTP
	FTP
	POP3
	IMAP
	IRC
	NNTP
	Telnet
	SSH
	RDP
	VNC
	X11
	TeamViewer
	Citrix
	Rlogin
	XDMCP
	MySQL
	PostgreSQL
	MongoDB
	Redis
	Memcached
	TDS
	Oracle
	DRDA
	Cassandra
	Kafka
	ZooKeeper
	AMQP
	MQTT
	STOMP
	NATS
	Gearman
	Ceph
	Zabbix
	SMB
	NFS
	RPC
	AFP
	Rsync
	ISCSI
	SVN
	Git
	OPCUA
	SIP
	STUN
	RTP
	RTCP
	H323
	MGCP
	Megaco
	Skinny
	IAX2
	MPEGTS
	Mumble
	FLUTE
	WireGuard
	OpenVPN
	IPsec
	GTP
	VXLAN
	Geneve
	L2TP
	PPTP
	LISP
	RoCE
	CAPWAP
	Tinc
	SoftEther
	NATPMP
	GRE
	NTP
	PTP
	DHCP
	DHCPv6
	SNMP
	LDAP
	Kerberos
	RADIUS
	Diameter
	TACACS
	Syslog
	NetFlow
	SFlow
	TFTP
	SSDP
	WSDiscovery
	SLP
	BFD
	HSRP
	BGP
	RIP
	LDP
	Whois
	CoAP
	DLEP
	DCERPC
	RIPEAtlas
	FIX
	CPHA
	SMPP
	ICMP
	ICMPv6
	IGMP
	OSPF
	PIM
	VRRP
	PGM
	SCTP
	Modbus
	DNP3
	S7
	S7Plus
	IEC104
	EtherNetIP
	BACnet
	HARTIP
	KNX
	FINS
	Synchrophasor
	C1222
	EGD
	EtherSIO
	CNPIP
	CAN
	HiSLIP
	SOMEIP
	RTPS
	Raft
	BitTorrent
	Gnutella
	Dropbox
	Spotify
	Syncthing
	WhatsApp
	Zoom
	Discord
	OICQ
	Threema
	Monero
	Bitcoin
	Avast
	LINE
	IMO
	TPLink
	Ubiquiti
	Meraki
	Sonos
	Nintendo
	SteamDatagram
	Steam
	RakNet
	Minecraft
	GenshinImpact
	WildRift
	CoDMobile
	AmongUs
	Activision
	CryNetwork
	Gaijin
	Tencent
	NetEase
	Photon
	ElderScrolls
	PathOfExile
	Starcraft
	KCP
	Yojimbo
	HalfLife
	HPVirtual

	protocols // how many there are
)

var names = [protocols]string{
	Unknown:       "unknown",
	HTTP:          "HTTP",
	HTTPConnect:   "HTTP-CONNECT",
	HTTP2:         "HTTP2",
	TLS:           "TLS",
	QUIC:          "QUIC",
	DTLS:          "DTLS",
	RTSP:          "RTSP",
	SOAP:          "SOAP",
	XMPP:          "XMPP",
	JSONRPC:       "JSON-RPC",
	Stratum:       "Stratum",
	RTMP:          "RTMP",
	SOCKS:         "SOCKS",
	DNS:           "DNS",
	MDNS:          "mDNS",
	LLMNR:         "LLMNR",
	DNSCrypt:      "DNSCrypt",
	NetBIOS:       "NetBIOS",
	SMTP:          "SMTP",
	FTP:           "FTP",
	POP3:          "POP3",
	IMAP:          "IMAP",
	IRC:           "IRC",
	NNTP:          "NNTP",
	Telnet:        "Telnet",
	SSH:           "SSH",
	RDP:           "RDP",
	VNC:           "VNC",
	X11:           "X11",
	TeamViewer:    "TeamViewer",
	Citrix:        "Citrix",
	Rlogin:        "Rlogin",
	XDMCP:         "XDMCP",
	MySQL:         "MySQL",
	PostgreSQL:    "PostgreSQL",
	MongoDB:       "MongoDB",
	Redis:         "Redis",
	Memcached:     "Memcached",
	TDS:           "TDS",
	Oracle:        "Oracle",
	DRDA:          "DRDA",
	Cassandra:     "Cassandra",
	Kafka:         "Kafka",
	ZooKeeper:     "ZooKeeper",
	AMQP:          "AMQP",
	MQTT:          "MQTT",
	STOMP:         "STOMP",
	NATS:          "NATS",
	Gearman:       "Gearman",
	Ceph:          "Ceph",
	Zabbix:        "Zabbix",
	SMB:           "SMB",
	NFS:           "NFS",
	RPC:           "RPC",
	AFP:           "AFP",
	Rsync:         "Rsync",
	ISCSI:         "iSCSI",
	SVN:           "SVN",
	Git:           "Git",
	OPCUA:         "OPC-UA",
	SIP:           "SIP",
	STUN:          "STUN",
	RTP:           "RTP",
	RTCP:          "RTCP",
	H323:          "H.323",
	MGCP:          "MGCP",
	Megaco:        "Megaco",
	Skinny:        "Skinny",
	IAX2:          "IAX2",
	MPEGTS:        "MPEG-TS",
	Mumble:        "Mumble",
	FLUTE:         "FLUTE",
	WireGuard:     "WireGuard",
	OpenVPN:       "OpenVPN",
	IPsec:         "IPsec",
	GTP:           "GTP",
	VXLAN:         "VXLAN",
	Geneve:        "Geneve",
	L2TP:          "L2TP",
	PPTP:          "PPTP",
	LISP:          "LISP",
	RoCE:          "RoCE",
	CAPWAP:        "CAPWAP",
	Tinc:          "Tinc",
	SoftEther:     "SoftEther",
	NATPMP:        "NAT-PMP",
	GRE:           "GRE",
	NTP:           "NTP",
	PTP:           "PTP",
	DHCP:          "DHCP",
	DHCPv6:        "DHCPv6",
	SNMP:          "SNMP",
	LDAP:          "LDAP",
	Kerberos:      "Kerberos",
	RADIUS:        "RADIUS",
	Diameter:      "Diameter",
	TACACS:        "TACACS",
	Syslog:        "Syslog",
	NetFlow:       "NetFlow",
	SFlow:         "sFlow",
	TFTP:          "TFTP",
	SSDP:          "SSDP",
	WSDiscovery:   "WS-Discovery",
	SLP:           "SLP",
	BFD:           "BFD",
	HSRP:          "HSRP",
	BGP:           "BGP",
	RIP:           "RIP",
	LDP:           "LDP",
	Whois:         "Whois",
	CoAP:          "CoAP",
	DLEP:          "DLEP",
	DCERPC:        "DCE-RPC",
	RIPEAtlas:     "RIPE-Atlas",
	FIX:           "FIX",
	CPHA:          "CPHA",
	SMPP:          "SMPP",
	ICMP:          "ICMP",
	ICMPv6:        "ICMPv6",
	IGMP:          "IGMP",
	OSPF:          "OSPF",
	PIM:           "PIM",
	VRRP:          "VRRP",
	PGM:           "PGM",
	SCTP:          "SCTP",
	Modbus:        "Modbus",
	DNP3:          "DNP3",
	S7:            "S7",
	S7Plus:        "S7-Plus",
	IEC104:        "IEC-104",
	EtherNetIP:    "EtherNet/IP",
	BACnet:        "BACnet",
	HARTIP:        "HART-IP",
	KNX:           "KNX",
	FINS:          "FINS",
	Synchrophasor: "C37.118",
	C1222:         "C12.22",
	EGD:           "EGD",
	EtherSIO:      "Ether-S-I/O",
	CNPIP:         "CNP/IP",
	CAN:           "CAN",
	HiSLIP:        "HiSLIP",
	SOMEIP:        "SOME/IP",
	RTPS:          "RTPS",
	Raft:          "Raft",
	BitTorrent:    "BitTorrent",
	Gnutella:      "Gnutella",
	Dropbox:       "Dropbox",
	Spotify:       "Spotify",
	Syncthing:     "Syncthing",
	WhatsApp:      "WhatsApp",
	Zoom:          "Zoom",
	Discord:       "Discord",
	OICQ:          "OICQ",
	Threema:       "Threema",
	Monero:        "Monero",
	Bitcoin:       "Bitcoin",
	Avast:         "Avast",
	LINE:          "LINE",
	IMO:           "IMO",
	TPLink:        "TP-Link",
	Ubiquiti:      "Ubiquiti",
	Meraki:        "Meraki",
	Sonos:         "Sonos",
	Nintendo:      "Nintendo",
	SteamDatagram: "Steam-Datagram",
	Steam:         "Steam",
	RakNet:        "RakNet",
	Minecraft:     "Minecraft",
	GenshinImpact: "Genshin-Impact",
	WildRift:      "Wild-Rift",
	CoDMobile:     "CoD-Mobile",
	AmongUs:       "Among-Us",
	Activision:    "Activision",
	CryNetwork:    "CryNetwork",
	Gaijin:        "Gaijin",
	Tencent:       "Tencent",
	NetEase:       "NetEase",
	Photon:        "Photon",
	ElderScrolls:  "Elder-Scrolls",
	PathOfExile:   "Path-of-Exile",
	Starcraft:     "Starcraft",
	KCP:           "KCP",
	Yojimbo:       "Yojimbo",
	HalfLife:      "Half-Life",
	HPVirtual:     "HP-Virtual",
}

// String returns the usual name.
func (p Protocol) String() string {
	if p >= protocols {
		return names[Unknown]
	}
	return names[p]
}

// byNumber is the protocol of a transport that carries no other.
func byNumber(transport uint8) Protocol {
	switch transport {
	case 1:
		return ICMP
	case 2:
		return IGMP
	case 47:
		return GRE
	case 50, 51:
		return IPsec
	case 58:
		return ICMPv6
	case 89:
		return OSPF
	case 103:
		return PIM
	case 112:
		return VRRP
	case 113:
		return PGM
	case 132:
		return SCTP
	}
	return Unknown
}
