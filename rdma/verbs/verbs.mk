# The libraries of millrace exec --rdma: libibverbs, librdmacm, and those of two vendors with functions that fail. A .map has their names and
# versions. Files with a dot before their names are no part of the binary; what is, is compressed.
VERBS   := rdma/verbs/build
VERBSCC  = $(CC) -std=c11 -O2 -fPIC -shared -Wall -Wextra -Werror -fvisibility=hidden

$(VERBS)/.libibverbs.so.1: $(wildcard rdma/verbs/*.c rdma/verbs/*.h) rdma/verbs/verbs.map shim/preload/ring.h
	$(VERBSCC) -Wl,-soname,$(@F:.%=%) -Wl,--version-script=rdma/verbs/verbs.map -o $@.new $(filter %.c,$^) -lpthread
	@mv $@.new $@

$(VERBS)/.librdmacm.so.1: $(wildcard rdma/rdmacm/*.c rdma/rdmacm/*.h) rdma/verbs/abi.h rdma/verbs/channel.h rdma/rdmacm/rdmacm.map $(VERBS)/.libibverbs.so.1
	$(VERBSCC) -Wl,-soname,$(@F:.%=%) -Wl,--version-script=rdma/rdmacm/rdmacm.map -o $@.new $(filter %.c,$^) $(VERBS)/.libibverbs.so.1 -lpthread
	@mv $@.new $@

# Functions that return objects return NULL. Those that return error numbers return EOPNOTSUPP: with 0 a program would take the device for one
# of the vendor's.
ERRNO_FUNCTIONS := _query|_init_obj|_set_context_attr|_get_clock_info|_modify|_get_async|_get_event
$(VERBS)/.lib%.so.1: rdma/verbs/%.map
	@sed -nE 's/^\t(\w+);$$/\1/p' $< | while read -r name; do \
		if echo $$name | grep -qE '$(ERRNO_FUNCTIONS)'; then result=95; else result=0; fi; \
		echo "__attribute__((visibility(\"default\"))) long $$name(void) { return $$result; }"; done >$@.c
	$(VERBSCC) -Wl,-soname,$(@F:.%=%) -Wl,--version-script=$< -o $@.new $@.c
	@mv $@.new $@; rm $@.c
