/* The contract: every key of the state file, its default, its step from one GPU to the next, its unit and meaning.
 *
 * The state file (environment FAKE_NVML_STATE) holds lines "KEY VALUE". It is read anew when its time, size or inode
 * changes, so a test steers a running program by replacing it. Without the file every default below holds: a server of
 * eight H100 80GB, with a different value in every field where a healthy machine allows it, so that two fields swapped
 * by mistake are seen. A default may differ from GPU to GPU (step), for the first eight; then it repeats.
 *
 * Keys of a GPU are written gpu.N.KEY, or gpu.*.KEY for every GPU that has no line of its own. N is the physical GPU,
 * whatever its index is at the moment (see "order").
 *
 * Values
 *   NUMBER                               as it is; 18446744073709551615 is "not available" for memory
 *   square LOW HIGH PERIOD_S DUTY        a square wave over wall-clock time: HIGH for the first DUTY of each period
 *   work LOW HIGH PATH                   LOW, and HIGH while programs say in the account at PATH that they work there
 *   effort LOW HIGH PATH                 the same; work with less effort moves it less: power, GPM
 *   held BASE PATH                       BASE and the bytes that programs hold, as they say there
 *   unsupported                          the call, or the field, answers NOT_SUPPORTED
 *   error CODE                           the same with another code: 4 is NO_PERMISSION
 *   TEXT                                 for names; \xHH, \n and \\ are escapes; may be empty
 *   Utilisation, clocks' samples and GPM answer the mean over their window, as the driver does. What is not utilisation
 *   and is moved by work or effort is, when it is asked for at once, the mean over the last second.
 *   A key that ends in _per_s moves the counter without that ending, from the moment it is first read.
 *
 * Lines that may be repeated
 *   gpu.N.process PID BYTES TYPE [sm=%] [mem=%] [enc=%] [dec=%] [gi=ID] [ci=ID]
 *       TYPE is compute, graphics or mps; BYTES "na" is "not available"; a process with none of sm mem enc dec is idle
 *       and absent from nvmlDeviceGetProcessUtilization.
 *   gpu.N.xid CODE SEQUENCE              each SEQUENCE higher than the last one delivered is one event
 *
 * Families (any number in place of I, J, L, M)
 *   gpu.N.gpm.I VALUE                    GPM metric I; "nan" is NaN
 *   gpu.N.field.I[.SCOPE] VALUE          field value I, over whatever the tables say; a "." makes it a double
 *   gpu.N.field_us.I MICROS              what a call takes that asks for field value I; of several the dearest counts
 *   gpu.N.samples.I HOW                  the buffer of sampling type I, instead of sample_hz and sample_depth:
 *                                          HZ DEPTH          so many a second, of which so many are kept
 *                                          HZ DEPTH busy     the same, and none is stored while the GPU idles
 *                                          HZ DEPTH changes  one is stored only when the value has changed
 *                                          empty             its size can be asked for, what is in it can not
 *   gpu.N.nvlink.L.KEY                   one link; nvlink.* below for all
 *   gpu.N.mig.M.KEY                      one MIG child; mig.* below for all; children have only these keys
 *   gpu.N.topology.J LEVEL               common ancestor with GPU J; default 40 (node) in the same four, else 50
 *   gpu.N.p2p.J STATUS                   peer status; default 0
 *
 * Faults: [gpu.N.]KIND.FUNCTION VALUE [after=CALLS] [times=CALLS]
 *   FUNCTION is an NVML name, or its start and "*". Without gpu.N the rule holds for every GPU and for calls that name
 *   none. Of several rules of a kind the last that matches decides. "after" leaves out the first calls that match,
 *   "times" ends the rule after that many.
 *   fail CODE          the call returns CODE (0: it works, an exception to an earlier rule); gpu.N.fail.* 15 is a lost GPU
 *   hang SECONDS       the call does not return for so long; "forever"; ends at once when the rule is gone
 *   delay_us MICROS    the call sleeps first
 *   burn_us MICROS     the call burns CPU first
 *   crash 1            the call raises SIGSEGV
 *   grow COUNT         a process list has COUNT more unknown processes at each call
 *   nvidia-ml-py's nvmlInit calls nvmlInitWithFlags: use "nvmlInit*".
 */
#ifndef KEYS_H
#define KEYS_H

typedef struct {
    const char *name, *value;
    double step;
} Key;

/* In a default text "##" is the GPU in hex (plus 1b; "$$" in capitals), "@@" the MIG child, and "A|B" means A for GPUs
 * 0-3 and B for 4-7. */

static const Key GLOBAL_KEYS[] = {
    {"gpus", "8", 0},                        /* how many there are, at most 64 */
    {"order", "", 0},                        /* physical GPUs by index, as "0 1 3"; empty: 0 to gpus-1 */
    {"driver_version", "580.65.06", 0},      /* text */
    {"nvml_version", "13.580.65.06", 0},     /* text */
    {"cuda_version", "13000", 0},            /* 1000 x major + 10 x minor */
    {"text_cut", "0", 0},                    /* 1: a text too long for its buffer is cut, not INSUFFICIENT_SIZE */
    {"sample_hz", "6", 0},                   /* samples a second in the driver's buffers, and its averaging window */
    {"sample_depth", "100", 0},              /* samples a buffer keeps; at most 120 */
    {"process_samples", "0", 0},             /* room that nvmlDeviceGetProcessUtilization wants, whatever it has */
    {"pcie_throughput_us", "20000", 0},      /* what nvmlDeviceGetPcieThroughput takes */
    {"one_lock", "0", 0},                    /* 1: one call at a time, of whatever GPU, as in a driver; who hangs lets
                                                the others pass */
};

static const Key GPU_KEYS[] = {
    /* identity */
    {"name", "NVIDIA H100 80GB HBM3", 0},
    {"uuid", "GPU-3c9d5e##-71a4-4f0b-9e2d-5b8a6c1f7e##", 0},
    {"serial", "16529230151##", 0},
    {"board_part_number", "692-2G520-0200-000", 0},
    {"vbios_version", "96.00.74.00.##", 0},
    {"pci_bus_id", "00000000:$$:00.0", 0},
    {"pci_device_id", "0x233010DE", 0},
    {"pci_subsystem_id", "0x16C110DE", 0},
    {"minor_number", "0", 1},
    {"brand", "14", 0},                      /* 14 NVIDIA, 5 GeForce, 2 Tesla */
    {"architecture", "9", 0},                /* 5 Volta, 6 Turing, 7 Ampere, 8 Ada, 9 Hopper, 10 Blackwell */
    {"compute_capability", "9.0", 0},
    {"cores", "16896", 0},
    {"memory_bus_width", "5120", 0},         /* bits */
    /* modes */
    {"persistence_mode", "1", 0},
    {"compute_mode", "0", 0},                /* 0 default, 2 prohibited, 3 exclusive process */
    {"ecc_mode", "1", 0},
    {"ecc_mode_pending", "1", 0},
    {"mig_mode", "0", 0},                    /* 1: utilisation and samples of the parent are NOT_SUPPORTED */
    {"mig_mode_pending", "0", 0},
    {"max_mig", "7", 0},
    {"virtualization_mode", "0", 0},         /* 0 none, 1 passthrough, 2 vGPU */
    {"display_mode", "0", 0},
    {"display_active", "0", 0},
    {"accounting_mode", "0", 0},
    /* work: % of the last window */
    {"util", "58", 1},
    {"mem_util", "33", 1},
    {"encoder_util", "3", 0},
    {"decoder_util", "7", 0},
    {"jpeg_util", "2", 0},
    {"ofa_util", "1", 0},
    /* memory: bytes */
    {"memory_total", "85520809984", 0},
    {"memory_reserved", "625999872", 0},
    {"memory_used", "44333793280", 1073741824},
    {"bar1_total", "137438953472", 0},
    {"bar1_used", "2097152", 0},
    /* temperature: degrees Celsius; *_tlimit are relative to the limit */
    {"temperature", "61", 1},
    {"memory_temperature", "73", 1},
    {"margin_temperature", "27", -1},
    {"shutdown_temperature", "unsupported", 0},
    {"slowdown_temperature", "unsupported", 0},
    {"memory_max_temperature", "unsupported", 0},
    {"gpu_max_temperature", "unsupported", 0},
    {"shutdown_tlimit", "-8", 0},
    {"slowdown_tlimit", "-2", 0},
    {"memory_max_tlimit", "-1", 0},
    {"gpu_max_tlimit", "0", 0},
    {"fans", "0", 0},
    {"fan_percent", "unsupported", 0},
    {"fan_rpm", "unsupported", 0},
    /* power: mW; energy: mJ, moved by power_mw */
    {"power_mw", "412000", 1000},
    {"power_average_mw", "409500", 1000},
    {"power_instant_mw", "431000", 1000},
    {"power_average_module_mw", "unsupported", 0},
    {"power_instant_module_mw", "unsupported", 0},
    {"power_average_memory_mw", "unsupported", 0},
    {"power_instant_memory_mw", "unsupported", 0},
    {"power_limit_min_mw", "200000", 0},
    {"power_limit_enforced_mw", "698000", 0},
    {"power_limit_mw", "699000", 0},
    {"power_limit_requested_mw", "699500", 0},
    {"power_limit_default_mw", "700000", 0},
    {"power_limit_max_mw", "701000", 0},
    {"energy_mj", "8123456789", 1000000000},
    /* clocks: MHz */
    {"graphics_clock", "1755", 0},
    {"sm_clock", "1740", 0},
    {"mem_clock", "2619", 0},
    {"video_clock", "1545", 0},
    {"max_graphics_clock", "1980", 0},
    {"max_sm_clock", "1965", 0},
    {"max_mem_clock", "2625", 0},
    {"max_video_clock", "1575", 0},
    {"boost_graphics_clock", "1935", 0},
    {"boost_sm_clock", "1925", 0},
    {"boost_mem_clock", "2610", 0},
    {"app_graphics_clock", "1890", 0},
    {"app_mem_clock", "2600", 0},
    {"pstate", "0", 0},
    {"event_reasons", "0", 0},               /* bit mask, nvmlClocksEventReason* */
    {"event_reasons_supported", "0x1ff", 0},
    /* time with the clocks held down: ns, and ns a second (1e9 = always) */
    {"sw_power_cap_ns", "510000000000", 0},
    {"sw_power_cap_ns_per_s", "21000000", 0},
    {"thermal_ns", "52000000000", 0},
    {"thermal_ns_per_s", "1000000", 0},
    {"sync_boost_ns", "53000000000", 0},
    {"sync_boost_ns_per_s", "2000000", 0},
    {"board_limit_ns", "54000000000", 0},
    {"board_limit_ns_per_s", "3000000", 0},
    {"low_utilization_ns", "55000000000", 0},
    {"low_utilization_ns_per_s", "4000000", 0},
    {"reliability_ns", "56000000000", 0},
    {"reliability_ns_per_s", "5000000", 0},
    {"app_clocks_ns", "57000000000", 0},
    {"app_clocks_ns_per_s", "6000000", 0},
    {"base_clocks_ns", "58000000000", 0},
    {"base_clocks_ns_per_s", "7000000", 0},
    {"sw_thermal_ns", "59000000000", 0},
    {"sw_thermal_ns_per_s", "8000000", 0},
    {"hw_thermal_ns", "60000000000", 0},
    {"hw_thermal_ns_per_s", "0", 0},
    {"hw_power_brake_ns", "61000000000", 0},
    {"hw_power_brake_ns_per_s", "0", 0},
    /* PCIe; TX is from the GPU */
    {"pcie_gen", "5", 0},
    {"pcie_max_gen", "5", 0},
    {"pcie_gpu_max_gen", "5", 0},
    {"pcie_width", "16", 0},
    {"pcie_max_width", "16", 0},
    {"pcie_tx_bytes", "51000000000000", 0},
    {"pcie_tx_bytes_per_s", "1200000000", 10000000},
    {"pcie_rx_bytes", "93000000000000", 0},
    {"pcie_rx_bytes_per_s", "3400000000", 10000000},
    {"pcie_bytes_short", "2", 0},            /* fields 197 and 198 are of 32 bits inside and begin anew; their type
                                                says so (1) or says 64 bits (2); 0: they have 64 */
    {"pcie_replays", "12", 0},
    {"pcie_replay_rollovers", "1", 0},
    {"pcie_l0_to_recovery", "20", 0},
    {"pcie_correctable_errors", "21", 0},
    {"pcie_naks_received", "22", 0},
    {"pcie_receiver_errors", "23", 0},
    {"pcie_bad_tlp", "24", 0},
    {"pcie_naks_sent", "25", 0},
    {"pcie_bad_dllp", "26", 0},
    {"pcie_non_fatal_errors", "27", 0},
    {"pcie_fatal_errors", "0", 0},
    {"pcie_unsupported_requests", "29", 0},
    {"pcie_lcrc_errors", "30", 0},
    {"pcie_lane_errors", "31", 0},
    /* NVLink, each link; bytes */
    {"nvlink_count", "18", 0},               /* at most 36 */
    {"nvlink_rcv_xmit_bytes", "unsupported", 0}, /* 1: fields 202 and 204 answer, as on Blackwell */
    {"nvlink.*.state", "1", 0},
    {"nvlink.*.speed", "26562", 0},          /* MB/s */
    {"nvlink.*.tx_bytes", "7000000000000", 0},
    {"nvlink.*.tx_bytes_per_s", "1100000000", 0},
    {"nvlink.*.rx_bytes", "5000000000000", 0},
    {"nvlink.*.rx_bytes_per_s", "900000000", 0},
    {"nvlink.*.replay_errors", "2", 0},
    {"nvlink.*.recovery_errors", "1", 0},
    {"nvlink.*.crc_errors", "4", 0},
    {"nvlink.*.recovery_ok", "unsupported", 0},
    {"nvlink.*.recovery_failed", "unsupported", 0},
    {"nvlink.*.recovery_events", "unsupported", 0},
    {"nvlink.*.effective_errors", "unsupported", 0},
    {"nvlink.*.effective_ber", "unsupported", 0},
    {"nvlink.*.symbol_errors", "unsupported", 0},
    {"nvlink.*.symbol_ber", "unsupported", 0},
    /* memory health */
    {"ecc_corrected", "3", 0},               /* volatile, since the driver loaded */
    {"ecc_uncorrected", "0", 0},
    {"ecc_corrected_total", "17", 0},        /* aggregate, for life */
    {"ecc_uncorrected_total", "5", 0},
    {"remapped_corrected", "2", 0},
    {"remapped_uncorrected", "1", 0},
    {"remapped_pending", "0", 0},
    {"remapped_failure", "0", 0},
    {"remap_banks_max", "637", 0},
    {"remap_banks_high", "2", 0},
    {"remap_banks_partial", "1", 0},
    {"remap_banks_low", "0", 0},
    {"remap_banks_none", "0", 0},
    {"retired_single", "unsupported", 0},    /* pages; before Ampere */
    {"retired_double", "unsupported", 0},
    {"retired_pending", "unsupported", 0},
    {"recovery_action", "0", 0},             /* 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset */
    {"mma_stall_percent", "unsupported", 0}, /* a double from driver 610 on */
    /* field values as some drivers answer them; lists of ids */
    {"fields_untyped", "", 0},               /* their type is left at 0, though they are whole numbers */
    {"fields_untouched", "", 0},             /* the driver leaves the whole entry as it is */
    /* place in the machine */
    {"numa_node", "unsupported", 0},         /* only where a GPU is a NUMA node itself */
    {"cpus", "0-47,96-143|48-95,144-191", 0},
    {"memory_nodes", "0|1", 0},
    /* processes */
    {"tenants", "unsupported", 0},           /* path of an account (account.py): programs that are on this GPU */
    {"process_stride", "24", 0},             /* bytes from one entry of a v2 or v3 list to the next; 24 is right,
                                                drivers 535.43 to 535.86 have 32 */
    /* events */
    {"event_types", "0x1f", 0},              /* bit mask of nvmlEventType*; "unsupported": no event API */
    /* GPM; 1-13 in %, 20 21 60 61 in MiB/s */
    {"gpm_supported", "1", 0},
    {"gpm_counted_s", "0", 0},              /* so old may the counters of a sample be */
    {"gpm_known_below", "unsupported", 0},   /* ids from here on are unknown to the driver: INVALID_ARGUMENT each */
    {"gpm_refuses_all", "0", 0},             /* or this code for the whole request that has one of them */
    {"gpm_untouched", "", 0},                /* a list of ids whose entries the driver leaves as they are */
    {"gpm.1", "94.5", 0},
    {"gpm.2", "83.25", 1},
    {"gpm.3", "41.5", 0},
    {"gpm.4", "12.75", 0},
    {"gpm.5", "37.5", 1},
    {"gpm.6", "0.5", 0},
    {"gpm.7", "36.25", 0},
    {"gpm.8", "0.25", 0},
    {"gpm.9", "1.25", 0},
    {"gpm.10", "52.75", 1},
    {"gpm.11", "0.75", 0},
    {"gpm.12", "21.5", 0},
    {"gpm.13", "6.5", 0},
    {"gpm.20", "1144.5", 0},
    {"gpm.21", "3242.5", 0},
    {"gpm.60", "15500.5", 0},
    {"gpm.61", "18900.5", 0},
    /* MIG children; the step is from child to child */
    {"mig_count", "0", 0},                   /* at most 8 */
    {"mig.*.name", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 0},
    {"mig.*.uuid", "MIG-8a41f0##-0b5c-5d2e-a7@@-c41e90d7b3##", 0},
    {"mig.*.gpu_instance_id", "7", 1},
    {"mig.*.compute_instance_id", "0", 0},
    {"mig.*.memory_total", "10468982784", 0},
    {"mig.*.memory_reserved", "67108864", 0},
    {"mig.*.memory_used", "2147483648", 104857600},
    {"mig.*.sms", "16", 0},
    {"mig.*.slices", "1", 0},
    {"mig.*.gpm_supported", "1", 0},
    {"mig.*.gpm.2", "45.5", 1},
    {"mig.*.gpm.5", "22.5", 1},
    {"mig.*.gpm.10", "31.5", 1},
};

#endif
