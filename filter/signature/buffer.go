package signature

// Buffer names bytes that contents are looked for in.
type Buffer uint8

// Direction is a set of directions of a flow.
type Direction uint8

// The directions.
const (
	ToServer Direction = 1 << iota
	ToClient
	BothWays = ToServer | ToClient
)

// SideOf returns the index of what a flow has of one direction: 0 is the client's, 1 the server's.
func SideOf(d Direction) int {
	if d == ToServer {
		return 0
	}
	return 1
}

// DirectionOf is the reverse of SideOf.
func DirectionOf(side int) Direction {
	if side == 0 {
		return ToServer
	}
	return ToClient
}

// The buffers. Payload is what the transport carries: a packet's payload or the stream's bytes.
const (
	Payload Buffer = iota
	HTTPURI
	HTTPURIRaw
	HTTPMethod
	HTTPRequestLine
	HTTPRequestBody
	HTTPHeader
	HTTPHeaderRaw
	HTTPHeaderNames
	HTTPUserAgent
	HTTPHost
	HTTPHostRaw
	HTTPAccept
	HTTPAcceptEnc
	HTTPAcceptLang
	HTTPConnection
	HTTPContentLen
	HTTPContentType
	HTTPCookie
	HTTPProtocol
	HTTPReferer
	HTTPStart
	HTTPStatCode
	HTTPStatMsg
	HTTPResponseLine
	HTTPResponseBody
	HTTPServer
	HTTPLocation
	FileData
	FileName
	SMTPHelo
	SMTPMailFrom
	SMTPRcptTo
	DNSQuery
	TLSSNI
	TLSCerts
	TLSCertSubject
	TLSCertIssuer
	TLSCertSerial
	TLSCertFingerprint
	JA3Hash
	JA3String
	JA3SHash
	JA3SString
	JA4Hash
	SSHProto
	SSHSoftware
	FTPCommand
	FTPCommandData
	FTPDataCommand
	SMBShare
	SMBNamedPipe
	MQTTType
	MQTTFlags
	MQTTQoS
	MQTTVersion
	MQTTReason
	MQTTSession
	MQTTConnectFlags
	MQTTClientID
	MQTTUsername
	MQTTPassword
	MQTTWillTopic
	MQTTWillMessage
	MQTTPublishTopic
	MQTTPublishMessage
	MQTTSubscribeTopic
	MQTTUnsubscribeTopic
	SIPMethod
	SIPURI
	SIPProtocol
	SIPRequestLine
	SIPResponseLine
	SIPStatCode
	SIPStatMsg
	SIPFrom
	SIPTo
	SIPVia
	SIPUserAgent
	SIPContentType
	SIPContentLength
	NFSProcedure
	NFSVersion
	QUICVersion
	QUICSNI
	QUICUserAgent
	QUICCyuString
	QUICCyuHash
	Base64Data
	IPSource
	IPDestination
	Buffers // how many there are
)

type bufferInfo struct {
	name string
	app  App
	dir  Direction
}

var buffers = [Buffers]bufferInfo{
	Payload:              {"payload", AppAny, BothWays},
	HTTPURI:              {"http.uri", AppHTTP, ToServer},
	HTTPURIRaw:           {"http.uri.raw", AppHTTP, ToServer},
	HTTPMethod:           {"http.method", AppHTTP, ToServer},
	HTTPRequestLine:      {"http.request_line", AppHTTP, ToServer},
	HTTPRequestBody:      {"http.request_body", AppHTTP, ToServer},
	HTTPHeader:           {"http.header", AppHTTP, BothWays},
	HTTPHeaderRaw:        {"http.header.raw", AppHTTP, BothWays},
	HTTPHeaderNames:      {"http.header_names", AppHTTP, BothWays},
	HTTPUserAgent:        {"http.user_agent", AppHTTP, ToServer},
	HTTPHost:             {"http.host", AppHTTP, ToServer},
	HTTPHostRaw:          {"http.host.raw", AppHTTP, ToServer},
	HTTPAccept:           {"http.accept", AppHTTP, ToServer},
	HTTPAcceptEnc:        {"http.accept_enc", AppHTTP, ToServer},
	HTTPAcceptLang:       {"http.accept_lang", AppHTTP, ToServer},
	HTTPConnection:       {"http.connection", AppHTTP, BothWays},
	HTTPContentLen:       {"http.content_len", AppHTTP, BothWays},
	HTTPContentType:      {"http.content_type", AppHTTP, BothWays},
	HTTPCookie:           {"http.cookie", AppHTTP, BothWays},
	HTTPProtocol:         {"http.protocol", AppHTTP, BothWays},
	HTTPReferer:          {"http.referer", AppHTTP, ToServer},
	HTTPStart:            {"http.start", AppHTTP, BothWays},
	HTTPStatCode:         {"http.stat_code", AppHTTP, ToClient},
	HTTPStatMsg:          {"http.stat_msg", AppHTTP, ToClient},
	HTTPResponseLine:     {"http.response_line", AppHTTP, ToClient},
	HTTPResponseBody:     {"http.response_body", AppHTTP, ToClient},
	HTTPServer:           {"http.server", AppHTTP, ToClient},
	HTTPLocation:         {"http.location", AppHTTP, ToClient},
	FileData:             {"file.data", AppAny, BothWays},
	FileName:             {"file.name", AppAny, BothWays},
	SMTPHelo:             {"smtp.helo", AppSMTP, ToServer},
	SMTPMailFrom:         {"smtp.mail_from", AppSMTP, ToServer},
	SMTPRcptTo:           {"smtp.rcpt_to", AppSMTP, ToServer},
	DNSQuery:             {"dns.query", AppDNS, ToServer},
	TLSSNI:               {"tls.sni", AppTLS, ToServer},
	TLSCerts:             {"tls.certs", AppTLS, ToClient},
	TLSCertSubject:       {"tls.cert_subject", AppTLS, ToClient},
	TLSCertIssuer:        {"tls.cert_issuer", AppTLS, ToClient},
	TLSCertSerial:        {"tls.cert_serial", AppTLS, ToClient},
	TLSCertFingerprint:   {"tls.cert_fingerprint", AppTLS, ToClient},
	JA3Hash:              {"ja3.hash", AppAny, ToServer},
	JA3String:            {"ja3.string", AppAny, ToServer},
	JA3SHash:             {"ja3s.hash", AppTLS, ToClient},
	JA3SString:           {"ja3s.string", AppTLS, ToClient},
	JA4Hash:              {"ja4.hash", AppAny, ToServer},
	SSHProto:             {"ssh.proto", AppSSH, BothWays},
	SSHSoftware:          {"ssh.software", AppSSH, BothWays},
	FTPCommand:           {"ftp.command", AppFTP, ToServer},
	FTPCommandData:       {"ftp.command_data", AppFTP, ToServer},
	FTPDataCommand:       {"ftpdata_command", AppFTPData, BothWays},
	SMBShare:             {"smb.share", AppSMB, ToServer},
	SMBNamedPipe:         {"smb.named_pipe", AppSMB, ToServer},
	MQTTType:             {"mqtt.type", AppMQTT, BothWays},
	MQTTFlags:            {"mqtt.flags", AppMQTT, BothWays},
	MQTTQoS:              {"mqtt.qos", AppMQTT, BothWays},
	MQTTVersion:          {"mqtt.protocol_version", AppMQTT, BothWays},
	MQTTReason:           {"mqtt.reason_code", AppMQTT, BothWays},
	MQTTSession:          {"mqtt.connack.session_present", AppMQTT, ToClient},
	MQTTConnectFlags:     {"mqtt.connect.flags", AppMQTT, ToServer},
	MQTTClientID:         {"mqtt.connect.clientid", AppMQTT, ToServer},
	MQTTUsername:         {"mqtt.connect.username", AppMQTT, ToServer},
	MQTTPassword:         {"mqtt.connect.password", AppMQTT, ToServer},
	MQTTWillTopic:        {"mqtt.connect.willtopic", AppMQTT, ToServer},
	MQTTWillMessage:      {"mqtt.connect.willmessage", AppMQTT, ToServer},
	MQTTPublishTopic:     {"mqtt.publish.topic", AppMQTT, BothWays},
	MQTTPublishMessage:   {"mqtt.publish.message", AppMQTT, BothWays},
	MQTTSubscribeTopic:   {"mqtt.subscribe.topic", AppMQTT, ToServer},
	MQTTUnsubscribeTopic: {"mqtt.unsubscribe.topic", AppMQTT, ToServer},
	SIPMethod:            {"sip.method", AppSIP, BothWays},
	SIPURI:               {"sip.uri", AppSIP, BothWays},
	SIPProtocol:          {"sip.protocol", AppSIP, BothWays},
	SIPRequestLine:       {"sip.request_line", AppSIP, BothWays},
	SIPResponseLine:      {"sip.response_line", AppSIP, BothWays},
	SIPStatCode:          {"sip.stat_code", AppSIP, BothWays},
	SIPStatMsg:           {"sip.stat_msg", AppSIP, BothWays},
	SIPFrom:              {"sip.from", AppSIP, BothWays},
	SIPTo:                {"sip.to", AppSIP, BothWays},
	SIPVia:               {"sip.via", AppSIP, BothWays},
	SIPUserAgent:         {"sip.user_agent", AppSIP, BothWays},
	SIPContentType:       {"sip.content_type", AppSIP, BothWays},
	SIPContentLength:     {"sip.content_length", AppSIP, BothWays},
	NFSProcedure:         {"nfs_procedure", AppNFS, BothWays},
	NFSVersion:           {"nfs_version", AppNFS, BothWays},
	QUICVersion:          {"quic.version", AppQUIC, ToServer},
	QUICSNI:              {"quic.sni", AppQUIC, ToServer},
	QUICUserAgent:        {"quic.ua", AppQUIC, ToServer},
	QUICCyuString:        {"quic.cyu.string", AppQUIC, ToServer},
	QUICCyuHash:          {"quic.cyu.hash", AppQUIC, ToServer},
	Base64Data:           {"base64_data", AppAny, BothWays},
	IPSource:             {"ip.src", AppAny, BothWays},
	IPDestination:        {"ip.dst", AppAny, BothWays},
}

// String returns the keyword of b.
func (b Buffer) String() string { return buffers[b].name }

// App returns the protocol that b is of.
func (b Buffer) App() App { return buffers[b].app }

// Directions returns the directions in which b occurs.
func (b Buffer) Directions() Direction { return buffers[b].dir }

// OfPacket reports whether b is of a packet or of a stream, whatever its protocol: no parser fills it.
func (b Buffer) OfPacket() bool { return b == Payload || b >= Base64Data }

// stickyNames are the keywords that make a buffer the one of the contents behind them: the name itself, and
// these.
var stickyNames = map[string]Buffer{
	"file_data": FileData, "dns_query": DNSQuery, "tls_sni": TLSSNI, "tls_cert_subject": TLSCertSubject,
	"tls_cert_issuer": TLSCertIssuer, "tls_cert_serial": TLSCertSerial, "tls_cert_fingerprint": TLSCertFingerprint,
	"ja3_hash": JA3Hash, "ja3_string": JA3String, "ssh_proto": SSHProto, "ssh_software": SSHSoftware,
	"http_request_line": HTTPRequestLine, "http_response_line": HTTPResponseLine, "http_content_type": HTTPContentType,
	"http_content_len": HTTPContentLen, "http_header_names": HTTPHeaderNames, "http_protocol": HTTPProtocol,
	"http_start": HTTPStart, "http_accept": HTTPAccept, "http_accept_enc": HTTPAcceptEnc, "http_accept_lang": HTTPAcceptLang,
	"http_connection": HTTPConnection, "http_referer": HTTPReferer,
	"pkt_data": Payload, "smb_share": SMBShare, "smb_named_pipe": SMBNamedPipe,
}

// modifierNames are the keywords that say of the content before them what buffer it is looked for in.
var modifierNames = map[string]Buffer{
	"http_uri": HTTPURI, "http_raw_uri": HTTPURIRaw, "http_method": HTTPMethod, "http_client_body": HTTPRequestBody,
	"http_header": HTTPHeader, "http_raw_header": HTTPHeaderRaw, "http_user_agent": HTTPUserAgent, "http_host": HTTPHost,
	"http_raw_host": HTTPHostRaw, "http_cookie": HTTPCookie, "http_stat_code": HTTPStatCode, "http_stat_msg": HTTPStatMsg,
	"http_server_body": FileData,
}

// directions returns the directions in which every buffer of r can be there.
func (r *Rule) directions() Direction {
	d := BothWays
	for i := range r.Parts {
		d &= r.Parts[i].Buffer.Directions()
	}
	return d
}
