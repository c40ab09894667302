-- GUE variant 0 without optional fields, for tshark, which has no dissector of it.
local gue = Proto("gue", "Generic UDP Encapsulation")
local proto = ProtoField.uint8("gue.proto", "Protocol")
gue.fields = { proto }
function gue.dissector(buf, info, tree)
  local t = tree:add(gue, buf(0, 4))
  t:add(proto, buf(1, 1))
  local inner = ({ [4] = "ip", [41] = "ipv6" })[buf(1, 1):uint()]
  Dissector.get(inner):call(buf(4):tvb(), info, tree)
end
DissectorTable.get("udp.port"):add(6080, gue)
