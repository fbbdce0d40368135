// Compiles SPIR-V kernels with Mesa's Radeon driver for a card that is not in this machine, and prints what its compiler
// reports: for each kernel a line `kernel NAME KEY=VALUE ...`, then its machine code.
//
// RADV_FORCE_FAMILY=gfx1100 VK_DRIVER_FILES=MANIFEST radv FILE...
//
// gpus.py builds it, runs it and makes tables of its output.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

#define LEN(array) (sizeof(array) / sizeof((array)[0]))

static void fail(const char *what, const char *of, int code) {
    fprintf(stderr, "radv: %s of %s failed (%d)\n", what, of, code);
    exit(1);
}

#define TRY(call, of) \
    do { \
        VkResult result = (call); \
        if (result != VK_SUCCESS) fail(#call, of, result); \
    } while (0)

static VkDevice device;
static PFN_vkGetPipelineExecutablePropertiesKHR get_executables;
static PFN_vkGetPipelineExecutableStatisticsKHR get_statistics;
static PFN_vkGetPipelineExecutableInternalRepresentationsKHR get_texts;

// Opens the only device of the driver, with the features that wgpu enables if they alter the machine code.
static void open_device(void) {
    VkInstance instance;
    VkApplicationInfo program = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_3};
    VkInstanceCreateInfo instance_info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &program};
    TRY(vkCreateInstance(&instance_info, NULL, &instance), "the Vulkan instance");
    VkPhysicalDevice card;
    uint32_t count = 1;
    if (vkEnumeratePhysicalDevices(instance, &count, &card) < 0 || count == 0) fail("listing", "the devices", 0);
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties(card, &properties);
    uint32_t mesa = properties.driverVersion;
    printf("Mesa %u.%u %s\n", VK_VERSION_MAJOR(mesa), VK_VERSION_MINOR(mesa), properties.deviceName);

    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executables = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR, .pipelineExecutableInfo = VK_TRUE};
    VkPhysicalDeviceRobustness2FeaturesEXT robustness = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ROBUSTNESS_2_FEATURES_EXT, .pNext = &executables, .robustBufferAccess2 = VK_TRUE};
    VkPhysicalDeviceVulkan13Features vulkan_13 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES, .pNext = &robustness, .subgroupSizeControl = VK_TRUE};
    VkPhysicalDeviceVulkan12Features vulkan_12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &vulkan_13, .shaderFloat16 = VK_TRUE,
        .vulkanMemoryModel = VK_TRUE, .vulkanMemoryModelDeviceScope = VK_TRUE};
    VkPhysicalDeviceVulkan11Features vulkan_11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &vulkan_12, .storageBuffer16BitAccess = VK_TRUE};
    VkPhysicalDeviceFeatures2 features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &vulkan_11, .features.robustBufferAccess = VK_TRUE};
    float priority = 1;
    VkDeviceQueueCreateInfo queue = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
    const char *extensions[] = {VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME, VK_EXT_ROBUSTNESS_2_EXTENSION_NAME};
    VkDeviceCreateInfo device_info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &features, .queueCreateInfoCount = 1, .pQueueCreateInfos = &queue,
        .enabledExtensionCount = LEN(extensions), .ppEnabledExtensionNames = extensions};
    TRY(vkCreateDevice(card, &device_info, NULL, &device), properties.deviceName);
    get_executables = (void *)vkGetDeviceProcAddr(device, "vkGetPipelineExecutablePropertiesKHR");
    get_statistics = (void *)vkGetDeviceProcAddr(device, "vkGetPipelineExecutableStatisticsKHR");
    get_texts = (void *)vkGetDeviceProcAddr(device, "vkGetPipelineExecutableInternalRepresentationsKHR");
}

static uint32_t *read_words(const char *path, size_t *count) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail("opening", path, 0);
    fseek(file, 0, SEEK_END);
    *count = (size_t)ftell(file) / 4;
    rewind(file);
    uint32_t *words = malloc(*count * 4);
    if (words == NULL || fread(words, 4, *count, file) != *count) fail("reading", path, 0);
    fclose(file);
    return words;
}

// The kernels bind buffers 0 to 7 of one set, each of which is a storage buffer, or uniform: its variable has the storage
// class 2. Returns the name of the entry point.
static const char *read_interface(const uint32_t *words, size_t count, VkDescriptorSetLayoutBinding bindings[8]) {
    enum { OP_ENTRY_POINT = 15, OP_VARIABLE = 59, OP_DECORATE = 71, UNIFORM = 2, BINDING = 33 };
    const char *entry = NULL;
    for (uint32_t i = 0; i < 8; i++)
        bindings[i] = (VkDescriptorSetLayoutBinding){
            .binding = i, .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, .descriptorCount = 1, .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
    for (size_t at = 5; at < count; at += words[at] >> 16) {
        if (words[at] >> 16 == 0) return NULL;
        const uint32_t *op = words + at;
        if ((op[0] & 0xffff) == OP_ENTRY_POINT) entry = (const char *)(op + 3);
        if ((op[0] & 0xffff) != OP_DECORATE || op[2] != BINDING || op[3] >= 8) continue;
        for (size_t other = at; other < count && words[other] >> 16 != 0; other += words[other] >> 16)
            if ((words[other] & 0xffff) == OP_VARIABLE && words[other + 2] == op[1] && words[other + 3] == UNIFORM)
                bindings[op[3]].descriptorType = VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER;
    }
    return entry;
}

static VkPipeline compile(const char *path) {
    size_t count;
    uint32_t *words = read_words(path, &count);
    VkDescriptorSetLayoutBinding bindings[8];
    const char *entry = read_interface(words, count, bindings);
    if (entry == NULL) fail("finding the entry point", path, 0);
    VkDescriptorSetLayout set;
    VkDescriptorSetLayoutCreateInfo set_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, .bindingCount = 8, .pBindings = bindings};
    TRY(vkCreateDescriptorSetLayout(device, &set_info, NULL, &set), path);
    VkPipelineLayout layout;
    VkPushConstantRange immediates = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = 128};
    VkPipelineLayoutCreateInfo layout_info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, .setLayoutCount = 1, .pSetLayouts = &set,
        .pushConstantRangeCount = 1, .pPushConstantRanges = &immediates};
    TRY(vkCreatePipelineLayout(device, &layout_info, NULL, &layout), path);
    VkShaderModule module;
    VkShaderModuleCreateInfo module_info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = count * 4, .pCode = words};
    TRY(vkCreateShaderModule(device, &module_info, NULL, &module), path);
    VkPipeline pipeline;
    VkComputePipelineCreateInfo pipeline_info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR | VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .flags = VK_PIPELINE_SHADER_STAGE_CREATE_ALLOW_VARYING_SUBGROUP_SIZE_BIT,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT, .module = module, .pName = entry},
        .layout = layout};
    TRY(vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &pipeline_info, NULL, &pipeline), path);
    vkDestroyShaderModule(device, module, NULL);
    vkDestroyPipelineLayout(device, layout, NULL);
    vkDestroyDescriptorSetLayout(device, set, NULL);
    free(words);
    return pipeline;
}

static void print_report(const char *path, VkPipeline pipeline) {
    VkPipelineInfoKHR of_pipeline = {.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, .pipeline = pipeline};
    VkPipelineExecutablePropertiesKHR executable = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR};
    uint32_t count = 1;
    if (get_executables(device, &of_pipeline, &count, &executable) < 0 || count == 0) fail("reporting", path, 0);
    const char *slash = strrchr(path, '/');
    printf("kernel %s subgroup=%u", slash != NULL ? slash + 1 : path, executable.subgroupSize);

    VkPipelineExecutableInfoKHR first = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, .pipeline = pipeline};
    VkPipelineExecutableStatisticKHR values[64] = {0};
    for (size_t i = 0; i < LEN(values); i++) values[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
    count = LEN(values);
    TRY(get_statistics(device, &first, &count, values), path);
    for (uint32_t i = 0; i < count; i++) {
        if (values[i].format != VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR) continue;
        putchar(' ');
        for (const char *c = values[i].name; *c != 0; c++) putchar(*c == ' ' ? '_' : tolower(*c));
        printf("=%llu", (unsigned long long)values[i].value.u64);
    }
    putchar('\n');

    VkPipelineExecutableInternalRepresentationKHR texts[16] = {0};
    for (size_t i = 0; i < LEN(texts); i++) texts[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR;
    count = LEN(texts);
    TRY(get_texts(device, &first, &count, texts), path);
    for (uint32_t i = 0; i < count; i++) texts[i].pData = calloc(1, texts[i].dataSize + 1);
    TRY(get_texts(device, &first, &count, texts), path);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(texts[i].name, "Assembly") == 0) puts(texts[i].pData);
        free(texts[i].pData);
    }
    fflush(stdout);
}

int main(int count, char **paths) {
    open_device();
    for (int i = 1; i < count; i++) {
        VkPipeline pipeline = compile(paths[i]);
        print_report(paths[i], pipeline);
        vkDestroyPipeline(device, pipeline, NULL);
    }
    return 0;
}
